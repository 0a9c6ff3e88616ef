"""The user's terminal: raw while something inside uses it, always given back.

Where there is no terminal (a pipe, a test, Windows without termios) everything here does nothing
and the size is 80 columns by 24 rows. Source: termios(3), signal(7).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

from tupper import PtySize


def terminal_size() -> PtySize:
    """Rows and columns of the terminal that we write to."""
    for stream in (sys.__stdout__, sys.__stdin__, sys.__stderr__):
        try:
            size = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            continue
        if size.columns and size.lines:
            return PtySize(rows=size.lines, cols=size.columns)
    return PtySize(rows=24, cols=80)


@contextlib.contextmanager
def raw_terminal() -> Generator[None]:
    """Every key reaches the program inside; the old mode is back at the end, whatever happens."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 - exists on POSIX only
    import tty  # noqa: PLC0415

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.asynccontextmanager
async def watch_size(changed: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Call ``changed`` after the window got another size."""
    number = getattr(signal, "SIGWINCH", None)
    if number is None:
        yield
        return
    loop = asyncio.get_running_loop()
    flag = asyncio.Event()

    async def follow() -> None:
        while True:
            await flag.wait()
            flag.clear()
            with contextlib.suppress(Exception):
                await changed()

    task = asyncio.create_task(follow())
    loop.add_signal_handler(number, flag.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
