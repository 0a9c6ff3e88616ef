"""Whether a process that somebody else started is still the same and still alive.

A pid alone is not an identity: it is used again. The pair of pid and start time is. A zombie is
dead. Source: proc(5), fields 3 and 22 of ``/proc/PID/stat``; pidfd_open(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """The start time of a living process, in clock ticks since boot; None if it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether the process that had this pid at this start time lives."""
    return pid > 0 and start_ticks(pid) == ticks


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_end(pid: int, ticks: int) -> None:
    """Return when that process has ended. Costs nothing while it lives."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        if not is_alive(pid, ticks):
            return
        loop.add_reader(fd, _finish, ended)
        await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def kill_and_wait(pid: int, ticks: int, *, timeout_s: float = 10.0) -> bool:
    """SIGKILL that process, if it is still the same, and wait for its end.

    Returns:
        Whether it is gone.
    """
    if not is_alive(pid, ticks):
        return True
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        await asyncio.wait_for(wait_end(pid, ticks), timeout_s)
    except TimeoutError:
        return not is_alive(pid, ticks)
    return True


def boot_id() -> str:
    """Changes with every boot of the host; empty where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
