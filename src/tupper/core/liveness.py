"""Processes that somebody else started: whether they are still the same, still live, and their end.

A pid alone is not an identity: it is used again. The pair of pid and start time is. A zombie is
dead. Source: proc(5), fields 3, 14 to 17 and 22 of ``/proc/PID/stat``; pidfd_open(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

_POLL_S = 0.002


def start_ticks(pid: int) -> int | None:
    """The start time of a living process, in clock ticks since boot; None if it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = _after_name(text)
    if fields[0] in "ZX":
        return None
    return int(fields[19])


def _after_name(stat: str) -> list[str]:
    """The fields from the third on; the name before them may be anything."""
    return stat[stat.rindex(")") + 2 :].split()


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process and its ended children; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _after_name(Path(f"/proc/{pid}/stat").read_text())
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return 0.0


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


def find_carrying(word: str, *, file: str) -> set[int]:
    """The processes that have this word among their arguments or in their environment.

    Those that we may not look at are not found.

    Args:
        word: whole, such as ``NAME=value``.
        file: below ``/proc/PID``: ``cmdline`` or ``environ``.
    """
    wanted = os.fsencode(word)
    found: set[int] = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(entry.path, file).read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


async def kill_all(find: Callable[[], Collection[int]], *, timeout_s: float) -> bool:
    """SIGKILL all processes that are found, again until none is left; never ourselves.

    Returns:
        Whether none is left.
    """
    deadline = time.monotonic() + timeout_s
    while pids := set(find()) - {os.getpid()}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def boot_id() -> str:
    """Changes with every boot of the host; empty where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
