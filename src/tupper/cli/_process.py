"""Run a command inside and be its standard streams.

``exec``, ``run`` and ``shell`` share this. Output is passed on as it comes; standard input is read
only when asked for, by a thread that dies with us, so an open pipe that nobody writes to never
keeps a finished command waiting. Ctrl-C ends the command inside before it ends us.

Lifetime: the command ends with us, unless it was started by :func:`start_inside`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tupper import AsyncSandbox, CommandExitException
from tupper.cli import _output
from tupper.cli._app import DEADLINE
from tupper.cli._sandboxes import attach, attach_async
from tupper.cli._terminal import raw_terminal, terminal_size, watch_size

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Start:
    """How a command starts; None and empty leave it to the sandbox."""

    line: str
    user: str | None
    cwd: str | None
    envs: Mapping[str, str]


def shell_line(command: Sequence[str]) -> str:
    """What the shell inside is given: several words unchanged, a single one as it is."""
    words = list(command[1:] if command[:1] == ("--",) else command)
    return words[0] if len(words) == 1 else shlex.join(words)


def run_inside(
    sandbox: str,
    command: Sequence[str],
    *,
    interactive: bool = False,
    tty: bool = False,
    timeout_s: float | None = None,
    user: str | None = None,
    cwd: str | None = None,
    envs: Mapping[str, str] | None = None,
) -> int:
    """Run to the end.

    Returns:
        Its exit code, or 124 if the time limit was over.
    """
    start = _Start(shell_line(command), user, cwd, dict(envs or {}))

    async def main() -> int:
        box = await attach_async(sandbox)
        body = (
            _in_terminal(box, start, interactive=interactive)
            if tty
            else _in_pipes(box, start, interactive=interactive)
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await body
        except TimeoutError:
            _output.note(f"tupper: the command did not end within {timeout_s:g} s and was killed")
            return DEADLINE

    return asyncio.run(main())


def start_inside(
    sandbox: str,
    command: Sequence[str],
    *,
    user: str | None,
    cwd: str | None,
    envs: Mapping[str, str],
) -> int:
    """Start and leave running; its pid."""
    box = attach(sandbox)
    handle = box.commands.run(
        shell_line(command), background=True, timeout=0, user=user, cwd=cwd, envs=dict(envs)
    )
    handle.disconnect()
    return handle.pid


async def _in_pipes(box: AsyncSandbox, start: _Start, *, interactive: bool) -> int:
    handle = await box.commands.run(
        start.line,
        background=True,
        stdin=interactive,
        timeout=0,
        user=start.user,
        cwd=start.cwd,
        envs=dict(start.envs),
        on_stdout=_output.text,
        on_stderr=lambda chunk: _output.data(chunk.encode(), to_stderr=True),
    )

    async def send(chunk: bytes) -> None:
        if chunk:
            await box.commands.send_stdin(handle.pid, chunk)
        else:
            await box.commands.close_stdin(handle.pid)

    async with _killed_on_failure(handle.kill), _stdin_to(send if interactive else None):
        return await _exit_code(handle.wait())


async def _in_terminal(box: AsyncSandbox, start: _Start, *, interactive: bool) -> int:
    handle = await box.pty.create(
        terminal_size(),
        on_data=_output.data,
        user=start.user,
        cwd=start.cwd,
        envs={"TERM": os.environ.get("TERM", "xterm-256color"), **start.envs},
        timeout=0,
        cmd=start.line or None,
    )

    async def send(chunk: bytes) -> None:
        # End of input is a character in a terminal: Ctrl-D (Source: termios(3), VEOF).
        await box.pty.send_stdin(handle.pid, chunk or b"\x04")

    async def resize() -> None:
        await box.pty.resize(handle.pid, terminal_size())

    async with (
        _killed_on_failure(handle.kill),
        watch_size(resize),
        _stdin_to(send if interactive else None),
    ):
        with raw_terminal() if interactive else contextlib.nullcontext():
            return await _exit_code(handle.wait())


async def _exit_code(ended: Awaitable[object]) -> int:
    try:
        result = await ended
    except CommandExitException as stopped:
        return stopped.exit_code
    code = getattr(result, "exit_code", 0)
    return code if isinstance(code, int) else 0


@contextlib.asynccontextmanager
async def _killed_on_failure(kill: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """End the command inside if we stop waiting for it: Ctrl-C, a time limit, an error."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            await asyncio.shield(asyncio.ensure_future(kill()))
        raise


@contextlib.asynccontextmanager
async def _stdin_to(send: Callable[[bytes], Awaitable[None]] | None) -> AsyncIterator[None]:
    """Pass our standard input on; an empty chunk is its end. Nothing is read without ``send``."""
    if send is None or sys.stdin is None:
        yield
        return
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        # Blocking reads, so in a thread; a daemon, because nothing can wake a read of a pipe.
        while True:
            try:
                chunk = os.read(sys.stdin.fileno(), _CHUNK)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (OSError, ValueError, RuntimeError, asyncio.CancelledError):
                return
            if not chunk:
                return

    async def pass_on() -> None:
        while chunk := await chunks.get():
            await send(chunk)
        await send(b"")

    threading.Thread(target=read, name="stdin", daemon=True).start()
    task = asyncio.create_task(pass_on())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await task
