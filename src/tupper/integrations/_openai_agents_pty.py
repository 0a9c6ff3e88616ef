"""Commands that outlive the call that began them, for the OpenAI Agents SDK.

A call waits as long as it is told to and returns what there is; later calls poll, or type into the
command's terminal if it has one. Without a terminal its input is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tupper import (
    AsyncCommandHandle,
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    PtySize,
    SandboxException,
)
from tupper.integrations._extra import missing

try:
    from agents.sandbox import errors
    from agents.sandbox.session import BaseSandboxSession, pty_types
    from agents.sandbox.session.pty_output import collect_pty_output
    from agents.sandbox.types import User
except ImportError as error:
    raise missing("openai-agents", error) from error

SIZE = PtySize(rows=24, cols=80)
START_YIELD_S = 10.0
WRITE_YIELD_S = 0.25


@dataclass
class Running:
    """A command that may still run; as its output comes, it is kept until a call takes it."""

    has_terminal: bool
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    used: float = field(default_factory=time.monotonic)
    handle: AsyncCommandHandle[Any] | None = None
    task: asyncio.Task[None] | None = None
    exit_code: int | None = None

    def take(self, piece: str | bytes) -> None:
        """Keep a piece of output."""
        self.chunks.append(piece.encode() if isinstance(piece, str) else piece)
        self.came.set()

    def is_over(self) -> bool:
        """Whether it has ended and all of its output is here."""
        return self.exit_code is not None

    async def follow(self, handle: AsyncCommandHandle[Any]) -> None:
        """Wait for its end; 255 if the sandbox ended before it."""
        with contextlib.suppress(SandboxException):
            await handle.wait()
        self.exit_code = 255 if handle.exit_code is None else handle.exit_code
        self.came.set()

    async def end(self) -> None:
        """End it, if it runs."""
        if self.handle is not None and self.task is not None:
            with contextlib.suppress(SandboxException):
                await self.handle.kill()
            await self.task


class Terminals(BaseSandboxSession):
    """The part of a session that is about such commands; ``self.running_commands`` are they."""

    def supports_pty(self) -> bool:
        """It does."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> pty_types.PtyExecUpdate:
        """Begin a command, and return what it wrote until it ended or the time was over."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        options = {**await self.place(user), "timeout": timeout or 0}
        entry = Running(tty)
        try:
            entry.handle = handle = await self._begin(argv, entry, options)
        except (AuthenticationException, CommandExitException) as error:  # no user, no program
            code = error.exit_code if isinstance(error, CommandExitException) else 126
            return pty_types.PtyExecUpdate(None, error.message.encode(), code, None)
        except SandboxException as error:
            raise errors.ExecTransportError(command=argv, cause=error) from error
        entry.task = asyncio.create_task(entry.follow(handle))
        number = pty_types.allocate_pty_process_id({*self.running_commands})
        self.running_commands[number] = entry
        await self._prune()
        wait_s = START_YIELD_S if yield_time_s is None else yield_time_s
        wait_ms = pty_types.clamp_pty_yield_time_ms(int(wait_s * 1000))
        return await self._update(number, wait_ms, max_output_tokens)

    async def _begin(
        self, argv: list[str], entry: Running, options: dict[str, Any]
    ) -> AsyncCommandHandle[Any]:
        if not entry.has_terminal:
            taken = {"on_stdout": entry.take, "on_stderr": entry.take, "retain_output": False}
            started: AsyncCommandHandle[Any] = await self.sandbox.commands.run(
                argv, background=True, **taken, **options
            )
            return started
        handle: AsyncCommandHandle[Any] = await self.sandbox.pty.create(
            SIZE, on_data=entry.take, **options
        )
        await self.sandbox.pty.send_stdin(handle.pid, f"exec {shlex.join(argv)}\n".encode())
        return handle

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> pty_types.PtyExecUpdate:
        """Type, or only look what has come."""
        entry = self._resolve_pty_session_entry(
            pty_processes=self.running_commands, session_id=session_id
        )
        if chars and not entry.has_terminal:
            raise RuntimeError("stdin is not available: the command was started without tty=true")
        if chars:
            with contextlib.suppress(NotFoundException):  # it has ended; the update says so
                await self.sandbox.pty.send_stdin(entry.handle.pid, chars.encode())
        entry.used = time.monotonic()
        wait_ms = pty_types.resolve_pty_write_yield_time_ms(
            yield_time_ms=int((WRITE_YIELD_S if yield_time_s is None else yield_time_s) * 1000),
            input_empty=not chars,
        )
        return await self._update(session_id, wait_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """End all that still run."""
        entries = [*self.running_commands.values()]
        self.running_commands.clear()
        for entry in entries:
            await entry.end()

    async def _update(
        self, number: int, wait_ms: int, max_output_tokens: int | None
    ) -> pty_types.PtyExecUpdate:
        entry = self.running_commands[number]
        output, token_count, is_over = await collect_pty_output(
            output_chunks=entry.chunks,
            output_lock=entry.lock,
            output_notify=entry.came,
            is_done=entry.is_over,
            yield_time_ms=wait_ms,
            max_output_tokens=max_output_tokens,
        )
        if not is_over:
            return pty_types.PtyExecUpdate(number, output, None, token_count)
        self.running_commands.pop(number, None)
        return pty_types.PtyExecUpdate(None, output, entry.exit_code, token_count)

    async def _prune(self) -> None:
        """End the one that was not used for longest, when there are too many."""
        if len(self.running_commands) <= pty_types.PTY_PROCESSES_MAX:
            return
        facts = [(n, e.used, e.is_over()) for n, e in self.running_commands.items()]
        number = pty_types.process_id_to_prune_from_meta(facts)
        if number is not None:
            await self.running_commands.pop(number).end()
