"""Running a command for a framework: any exit code is a result, and a time limit has its output.

Errors: only what is no fault of the command: the sandbox has ended, there is no such user.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from tupper import (
    AsyncCommandHandle,
    AsyncSandbox,
    CommandExitException,
    CommandResult,
    Sandbox,
    SandboxException,
    TimeoutException,
)

LIFETIME_S = 24 * 3600  # of a sandbox that an adapter made and nobody ends
OURS: Mapping[str, Any] = {"timeout": LIFETIME_S, "owner": "process"}  # if only we use it
TIMED_OUT = 124  # the exit code of timeout(1)
MAX_OUTPUT_BYTES = 64 * 1024 * 1024  # of each stream of a command that ends
PARTIAL_CHARS = 1 << 20  # of each stream, that are kept of a command that does not end


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Args:
        exit_code: 0 to 255; 124 if its time was over.
        stdout: its output, whole if ``dropped_bytes`` is 0; the beginning if its time was over.
        stderr: the same of its errors.
        dropped_bytes: of both, when there was more than the SDK keeps.
        timed_out: its time was over, and it was ended.
        not_allowed: it did not begin, because it may not be executed.
    """

    exit_code: int
    stdout: str
    stderr: str
    dropped_bytes: int = 0
    timed_out: bool = False
    not_allowed: bool = False


class Partial:
    """Takes the beginning of a stream.

    Args:
        limit: of characters.
    """

    def __init__(self, limit: int = PARTIAL_CHARS) -> None:
        self.text = ""
        self._limit = limit

    def __call__(self, piece: str) -> None:
        """Take the next piece."""
        self.text += piece[: self._limit - len(self.text)]


class _Options(TypedDict):
    envs: Mapping[str, str] | None
    user: str | None
    cwd: str | None
    on_stdout: Partial
    on_stderr: Partial
    timeout: float | None
    max_output_bytes: int


def together(command: str) -> str:
    """The command with its errors among its output, in the order in which it wrote them."""
    return f"exec 2>&1\n{command}"


def run(
    sandbox: Sandbox, command: str | Sequence[str], *, timeout_s: float | None = None
) -> Outcome:
    """Run a command in the foreground, without an input.

    Args:
        sandbox: where.
        command: text for a login shell, or a program and its arguments.
        timeout_s: seconds; None for no limit.
    """
    out, err = Partial(), Partial()
    try:
        return _outcome(
            sandbox.commands.run(
                command,
                on_stdout=out,
                on_stderr=err,
                timeout=timeout_s,
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        )
    except CommandExitException as failed:
        return _outcome(failed)
    except TimeoutException as late:
        return _late(late, out, err)


async def arun(
    sandbox: AsyncSandbox,
    command: str | Sequence[str],
    *,
    timeout_s: float | None = None,
    envs: Mapping[str, str] | None = None,
    cwd: str | None = None,
    user: str | None = None,
    stdin: str | bytes | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Outcome:
    """The same as :func:`run`, with what else commands take, and an input."""
    out, err = Partial(), Partial()
    options: _Options = {
        "envs": envs,
        "user": user,
        "cwd": cwd,
        "on_stdout": out,
        "on_stderr": err,
        "timeout": timeout_s,
        "max_output_bytes": max_output_bytes,
    }
    try:
        if stdin is None:
            return _outcome(await sandbox.commands.run(command, **options))
        handle = await sandbox.commands.run(command, background=True, stdin=True, **options)
        return _outcome(await _fed(handle, stdin))
    except CommandExitException as failed:
        return _outcome(failed)
    except TimeoutException as late:
        return _late(late, out, err)


async def _fed(handle: AsyncCommandHandle[str], data: str | bytes) -> CommandResult[str]:
    """Give a command its input, all of it or what it takes, and wait for its end."""
    try:
        with contextlib.suppress(SandboxException):  # it ended, or closed it; wait() says which
            await handle.send_stdin(data, request_timeout=0)
            await handle.close_stdin()
        return await handle.wait()
    except asyncio.CancelledError:
        await asyncio.shield(handle.kill())
        raise


async def working_dir(sandbox: AsyncSandbox) -> str:
    """Where commands start, without links in it."""
    return (await arun(sandbox, ["pwd", "-P"])).stdout[:-1]


def _outcome(result: CommandResult[str]) -> Outcome:
    not_allowed = result.exit_code == 126 and result.stderr == result.error
    return Outcome(
        result.exit_code,
        result.stdout,
        result.stderr,
        result.dropped_bytes,
        not_allowed=not_allowed,
    )


def _late(error: TimeoutException, out: Partial, err: Partial) -> Outcome:
    if type(error) is not TimeoutException:
        raise error  # the sandbox is gone, or does not answer
    return Outcome(TIMED_OUT, out.text, err.text, timed_out=True)
