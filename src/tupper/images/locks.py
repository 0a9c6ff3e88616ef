"""Locks between the tasks and the processes that share one store.

A lock is ``flock`` on a small file that is never removed by us: the kernel releases it when its
holder dies, however it dies. Between tasks of one process it works too, because every
acquisition opens the file anew.

Source: flock(2): locks belong to the open file description.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from tupper.core.errors import DeadlineExceeded

# Waiting in a thread would take a thread of the pool per waiter for as long as a pull takes, and
# cannot be cancelled. Asking costs a few microseconds.
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Take the lock if nobody has it.

    Returns:
        a descriptor to close for the release, or None.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.asynccontextmanager
async def locked(
    path: Path, *, timeout_s: float, shared: bool = False
) -> AsyncGenerator[None, None]:
    """Hold the lock, waiting for it if necessary.

    Raises:
        DeadlineExceeded: somebody else held it for all the time.
    """
    fd = await _wait(path, timeout_s=timeout_s, shared=shared)
    try:
        yield
    finally:
        os.close(fd)


async def _wait(path: Path, *, timeout_s: float, shared: bool) -> int:
    pause_s = _FIRST_PAUSE_S
    try:
        async with asyncio.timeout(timeout_s):
            while (fd := try_lock(path, shared=shared)) is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            return fd
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"another process has been at work on the same image for {timeout_s:g} s"
        ) from error


@contextlib.contextmanager
def held(path: Path, *, shared: bool = False) -> Generator[bool, None, None]:
    """Hold the lock if it is free; the value says whether it was."""
    fd = try_lock(path, shared=shared)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)
