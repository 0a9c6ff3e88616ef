"""Running a command for a framework: any exit code is a result, and a time limit has its output.

Errors: only what is no fault of the command: the sandbox has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from tupper import (
    AsyncCommandHandle,
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    CommandResult,
    Sandbox,
    SandboxException,
    TimeoutException,
)
from tupper.integrations._halves import at_once, awaited

LIFETIME_S = 24 * 3600  # of a sandbox that an adapter made and nobody ends
LASTING: Mapping[str, Any] = {"timeout": LIFETIME_S}  # options of one that outlives us
OURS: Mapping[str, Any] = {**LASTING, "owner": "process"}  # of one that only we use
TIMED_OUT = 124  # the exit code of timeout(1)
NOT_ALLOWED = 126  # of a shell, for what it may not execute
MAX_OUTPUT_BYTES = 64 * 1024 * 1024  # of each stream of a command that ends
WORD_MAX_BYTES = 96 * 1024  # Linux takes 128 KiB for one argument, execve(2)
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
    """The same as :func:`arun` for the other half of the SDK."""
    return at_once(arun(awaited(sandbox), command, timeout_s=timeout_s))


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
    """Run a command in the foreground.

    Args:
        sandbox: where.
        command: text for a login shell, or a program and its arguments.
        timeout_s: seconds; None for no limit.
        envs, cwd, user: of the SDK's ``commands.run``.
        stdin: its input, which is at its end at once if None.
        max_output_bytes: of each stream.
    """
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
        async with _in_words(sandbox, command, user) as words:
            if stdin is None:
                return _outcome(await sandbox.commands.run(words, **options))
            handle = await sandbox.commands.run(words, background=True, stdin=True, **options)
            return _outcome(await _fed(handle, stdin))
    except CommandExitException as failed:
        return _outcome(failed)
    except AuthenticationException as unknown:
        if user is None:
            raise
        return Outcome(NOT_ALLOWED, "", unknown.message)  # there is no such user
    except TimeoutException as late:
        return _late(late, out, err)


@contextlib.asynccontextmanager
async def _in_words(
    sandbox: AsyncSandbox, command: str | Sequence[str], user: str | None
) -> AsyncGenerator[str | list[str]]:
    """A command as it can be started: text that is too long for one argument becomes a file."""
    if not isinstance(command, str):
        yield list(command)
        return
    if len(command.encode()) <= WORD_MAX_BYTES:
        yield command
        return
    script = f"/tmp/.tupper-{secrets.token_hex(8)}.sh"
    await sandbox.files.write(script, command, user)
    try:
        yield ["/bin/bash", "-l", script]
    finally:
        with contextlib.suppress(SandboxException):  # it may have ended meanwhile
            await sandbox.files.remove(script)


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
    not_allowed = result.exit_code == NOT_ALLOWED and result.stderr == result.error
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
