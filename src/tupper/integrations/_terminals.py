"""Commands that outlive the call that began them, for agents that look again, or type into them.

A call waits as long as it is told to and returns what came; the next goes on from there. A command
without a terminal has an empty input.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import random
import shlex
import time
from dataclasses import dataclass, field
from typing import Any

from tupper import (
    AsyncCommandHandle,
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    PtySize,
    SandboxException,
)
from tupper.integrations._shell import NOT_ALLOWED

SIZE = PtySize(rows=24, cols=80)
NUMBERS = range(1_000, 100_000)
KEPT = 64  # commands; of more, one ends
UNKNOWN_END = 255  # the exit code if the sandbox ended first


@dataclass(frozen=True)
class Glance:
    """What a call sees of a command.

    Args:
        number: of the command; None if it has ended.
        text: what it wrote since the last call.
        exit_code: None while it runs.
    """

    number: int | None
    text: str
    exit_code: int | None


@dataclass
class _Running:
    """A command; its output is kept until a call takes it."""

    has_terminal: bool
    text: str = ""
    exit_code: int | None = None
    used: float = field(default_factory=time.monotonic)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    handle: AsyncCommandHandle[Any] | None = None
    task: asyncio.Task[None] | None = None

    def take(self, piece: str | bytes) -> None:
        self.text += piece if isinstance(piece, str) else self.decoder.decode(piece)

    def end(self, exit_code: int, said: str = "") -> None:
        self.text += self.decoder.decode(b"", final=True) + said
        self.exit_code = exit_code
        self.over.set()

    async def follow(self, handle: AsyncCommandHandle[Any]) -> None:
        with contextlib.suppress(SandboxException):
            await handle.wait()
        self.end(UNKNOWN_END if handle.exit_code is None else handle.exit_code)

    async def kill(self) -> None:
        if self.handle is not None and self.task is not None:
            with contextlib.suppress(SandboxException):
                await self.handle.kill()
            await self.task


class Terminals:
    """The commands of one sandbox that are kept for later calls.

    Args:
        sandbox: where.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self._commands: dict[int, _Running] = {}

    async def start(
        self, argv: list[str], wait_s: float, *, has_terminal: bool, **options: Any
    ) -> Glance:
        """Begin a command, and look at it when it has ended or the time is over.

        Args:
            argv: a program and its arguments; that there is none, or no such user, is a result.
            wait_s: seconds.
            has_terminal: whether it can be typed to.
            options: of the SDK's ``commands.run`` and ``pty.create``.
        """
        entry = _Running(has_terminal)
        try:
            entry.handle = await self._begin(argv, entry, options)
            entry.task = asyncio.create_task(entry.follow(entry.handle))
        except CommandExitException as error:
            entry.end(error.exit_code, error.message)
        except AuthenticationException as error:
            entry.end(NOT_ALLOWED, error.message)
        number = random.choice([n for n in NUMBERS if n not in self._commands])  # noqa: S311
        self._commands[number] = entry
        if len(self._commands) > KEPT:
            oldest = min(self._commands, key=lambda n: self._commands[n].used)
            await self._commands.pop(oldest).kill()
        return await self._look(number, wait_s)

    async def _begin(
        self, argv: list[str], entry: _Running, options: dict[str, Any]
    ) -> AsyncCommandHandle[Any]:
        handle: AsyncCommandHandle[Any]
        if not entry.has_terminal:
            options |= {"on_stdout": entry.take, "on_stderr": entry.take, "retain_output": False}
            handle = await self._sandbox.commands.run(argv, background=True, **options)
            return handle
        handle = await self._sandbox.pty.create(SIZE, on_data=entry.take, **options)
        await self._sandbox.pty.send_stdin(handle.pid, f"exec {shlex.join(argv)}\n".encode())
        return handle

    async def type(self, number: int, text: str, wait_s: float) -> Glance:
        """Type, if there is a text, and look what came.

        Errors:
            KeyError: no such command, or its end was seen already.
            RuntimeError: it has no terminal to type into.
        """
        entry = self._commands[number]
        if text and not entry.has_terminal:
            raise RuntimeError("stdin is not available: the command was started without tty=true")
        if text and entry.handle is not None:
            with contextlib.suppress(NotFoundException):  # it has ended; the glance says so
                await self._sandbox.pty.send_stdin(entry.handle.pid, text.encode())
        entry.used = time.monotonic()
        return await self._look(number, wait_s)

    async def end_all(self) -> None:
        """End all that still run."""
        entries = [*self._commands.values()]
        self._commands.clear()
        for entry in entries:
            await entry.kill()

    async def _look(self, number: int, wait_s: float) -> Glance:
        entry = self._commands[number]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(entry.over.wait(), wait_s)
        text, entry.text = entry.text, ""
        if entry.exit_code is None:
            return Glance(number, text, None)
        self._commands.pop(number, None)
        return Glance(None, text, entry.exit_code)
