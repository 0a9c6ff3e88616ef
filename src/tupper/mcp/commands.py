"""A command of a model: it runs in a task, its output is kept for paging, it can be asked about.

In the foreground and in the background it is the same thing; only who waits differs. If this server
goes away, so does the command.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping
from enum import StrEnum
from typing import cast

from tupper.core.errors import TupperError
from tupper.mcp.output import Stream
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared import errors
from tupper.sdk._shared.types import CommandResult

WORD_MAX = 96 * 1024  # bytes; Linux takes 128 KiB for one argument, execve(2)


async def outcome_of(run: Awaitable[CommandResult[str]]) -> CommandResult[str]:
    """How a command ended: another exit code than 0 is a result, not an error."""
    try:
        return await run
    except errors.CommandExitException as ended:  # pyright: ignore[reportUnknownVariableType]
        return cast("CommandResult[str]", ended)


class Status(StrEnum):
    """Where a command is."""

    RUNNING = "running"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"


class Command:
    """One command.

    Args:
        command_id: for the model.
        sandbox: where it runs.
    """

    def __init__(self, command_id: str, sandbox: AsyncSandbox) -> None:
        self.command_id = command_id
        self.sandbox = sandbox
        self.stdout = Stream()
        self.stderr = Stream()
        self.status = Status.RUNNING
        self.exit_code: int | None = None
        self.note = ""
        self.failure: TupperError | None = None
        self.seen = {"stdout": 0, "stderr": 0}
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        text: str,
        *,
        cwd: str | None,
        envs: Mapping[str, str] | None,
        user: str | None,
        timeout_s: float,
    ) -> None:
        """Begin. Returns at once."""
        work = self._run(text, cwd=cwd, envs=envs, user=user, timeout_s=timeout_s)
        self._task = asyncio.create_task(work, name=f"mcp-{self.command_id}")

    async def wait(self, limit_s: float | None = None) -> bool:
        """Wait for its end, at most so many seconds; whether it has ended."""
        assert self._task is not None
        done, _ = await asyncio.wait([self._task], timeout=limit_s)
        return bool(done)

    async def kill(self) -> bool:
        """End it and what it started. False if it had ended."""
        assert self._task is not None
        if self._task.done():
            return False
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.status is Status.KILLED

    async def _run(
        self,
        text: str,
        *,
        cwd: str | None,
        envs: Mapping[str, str] | None,
        user: str | None,
        timeout_s: float,
    ) -> None:
        script = ""
        try:
            script, argv = await self._as_argv(text, user)
            run = self.sandbox.commands.run(
                argv,
                envs=envs,
                user=user,
                cwd=cwd,
                on_stdout=self.stdout.add,
                on_stderr=self.stderr.add,
                timeout=timeout_s,
                retain_output=False,
            )
            self._end(await outcome_of(run))
        except (errors.SandboxNotRunningException, errors.SandboxUnreachableException) as error:
            self.status, self.failure = Status.FAILED, error
        except errors.TimeoutException:
            self.status = Status.TIMED_OUT
            self.note = f"it was ended after {timeout_s:g} s, with everything that it started"
        except asyncio.CancelledError:
            self.status = Status.KILLED
        except TupperError as error:
            self.status, self.failure = Status.FAILED, error
        finally:
            if script:
                await self._remove(script)

    def _end(self, result: CommandResult[str]) -> None:
        self.status = Status.EXITED
        self.exit_code = result.exit_code
        if result.limit:
            self.note = f"it met its limit of {result.limit}"
        elif result.signal:
            self.note = result.error or f"signal {result.signal} ended it"

    async def _as_argv(self, text: str, user: str | None) -> tuple[str, str | list[str]]:
        """A text that is too long for one argument becomes a file, which is removed afterwards."""
        if len(text.encode()) <= WORD_MAX:
            return "", text
        script = f"/tmp/.tupper-{secrets.token_hex(8)}.sh"  # noqa: S108 - of the sandbox
        await self.sandbox.files.write(script, text, user)
        return script, ["/bin/bash", "-l", script]

    async def _remove(self, script: str) -> None:
        try:
            await self.sandbox.files.remove(script)
        except TupperError as error:
            self.note = self.note or f"{script} is left: {error.message}"
