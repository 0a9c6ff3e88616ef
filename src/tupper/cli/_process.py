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
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from tupper import AsyncSandbox, CommandExitException, TimeoutException
from tupper.cli import _output
from tupper.cli._app import DEADLINE
from tupper.cli._sandboxes import attach, attach_async
from tupper.cli._streams import Start, Streams, parse_words
from tupper.cli._terminal import raw_terminal, terminal_size, watch_size
from tupper.protocol import envd
from tupper.sdk._handles_async import AsyncCommandHandle
from tupper.sdk._shared.result import Output

_CHUNK = 64 * 1024
_EOF_KEY = b"\x04"  # Ctrl-D, the end of input in a terminal. Source: termios(3), VEOF.


def run_inside(
    sandbox: str,
    words: Sequence[str],
    *,
    interactive: bool = False,
    tty: bool = False,
    timeout_s: float | None = None,
    user: str | None = None,
    cwd: str | None = None,
    envs: Mapping[str, str] | None = None,
) -> int:
    """Run to the end.

    Args:
        sandbox: its id, the beginning of one, or its name.
        words: see :func:`~tupper.cli._streams.parse_words`.
        interactive: pass our standard input on.
        tty: give it a terminal.
        timeout_s: until it and its children are ended.
        user: who runs it.
        cwd: where.
        envs: on top of the sandbox's.

    Returns:
        Its exit code, or 124 if the time limit was over.
    """
    program, args = parse_words(tuple(words))
    start = Start(program, args, user, cwd, dict(envs or {}), interactive, timeout_s)
    if tty:
        terminal = {"TERM": os.environ.get("TERM", "xterm-256color")}
        start = replace(
            start, size=terminal_size(), has_stdin=True, envs=terminal | dict(start.envs)
        )

    async def main() -> int:
        box = await attach_async(sandbox)
        try:
            return await _follow(box, start, interactive=interactive)
        except CommandExitException as stopped:  # pyright: ignore[reportUnknownVariableType]
            if why := _explain(stopped):  # pyright: ignore[reportUnknownArgumentType]
                _output.note(f"tupper: {why}")
            return stopped.exit_code
        except TimeoutException as late:
            # Its subclasses say that the sandbox is gone, which is another matter.
            if timeout_s is None or type(late) is not TimeoutException:
                raise
            _output.note(f"tupper: the command did not end within {timeout_s:g} s and was killed")
            return DEADLINE

    return asyncio.run(main())


def _explain(stopped: CommandExitException[str]) -> str:
    """What an exit code alone does not tell: it never began, or it was ended from outside.

    Only a command that could not be started comes with a text; output is not kept here.
    """
    never_began: object = stopped.stderr
    if never_began or stopped.signal or stopped.limit:
        return stopped.error or ""
    return ""


def start_inside(
    sandbox: str,
    words: Sequence[str],
    *,
    user: str | None,
    cwd: str | None,
    envs: Mapping[str, str],
) -> int:
    """Start and leave running; its pid."""
    program, args = parse_words(tuple(words))
    handle = attach(sandbox).commands.run(
        [program, *args], background=True, timeout=0, user=user, cwd=cwd, envs=dict(envs)
    )
    handle.disconnect()
    return handle.pid


async def _follow(box: AsyncSandbox, start: Start, *, interactive: bool) -> int:
    handle = await Streams.of(box).start(start, _show)

    async def send(chunk: bytes) -> None:
        if chunk:
            await handle.send_stdin(chunk)
        elif start.size is not None:
            await handle.send_stdin(_EOF_KEY)
        else:
            await handle.close_stdin()

    async def resize() -> None:
        await box.pty.resize(handle.pid, terminal_size())

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(_killed_on_failure(handle))
        if start.size is not None:
            await stack.enter_async_context(watch_size(resize))
        if interactive:
            await stack.enter_async_context(_stdin_to(send))
            if start.size is not None:
                stack.enter_context(raw_terminal())
        await handle.wait()
    return 0


def _show(event: Output) -> None:
    if event.gap:
        _output.note(f"tupper: {event.gap} bytes of output were lost here")
    _output.data(event.data, to_stderr=event.stream is envd.Stream.STDERR)


@contextlib.asynccontextmanager
async def _killed_on_failure(handle: AsyncCommandHandle[str]) -> AsyncGenerator[None]:
    """End the command inside if we stop waiting for it: Ctrl-C, a broken pipe, an error."""
    try:
        yield
    except CommandExitException:
        raise
    except BaseException:
        with contextlib.suppress(Exception):
            await asyncio.shield(asyncio.ensure_future(handle.kill()))
        raise


@contextlib.asynccontextmanager
async def _stdin_to(send: Callable[[bytes], Awaitable[None]]) -> AsyncGenerator[None]:
    """Pass our standard input on; an empty chunk is its end."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        # Blocking reads, so in a thread; a daemon, because nothing can wake a read of a pipe.
        while True:
            try:
                chunk = os.read(sys.stdin.fileno(), _CHUNK)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (OSError, ValueError, AttributeError, RuntimeError):
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
        # A command that has ended takes no more input; that is not an error of ours.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await task
