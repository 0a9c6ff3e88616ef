"""What a machine has on the host, dead or alive, and how it goes: what all backends share.

The end of a machine is always the same. Its processes are killed, whatever it has on the host is
removed, each step whatever became of the others, and it is over when the process of its record is
reaped, which has then given its memory back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from tupper.core import log
from tupper.core.backend import MachineRecord
from tupper.core.cgroup import Cgroup, find_hierarchy
from tupper.core.errors import MachineFailed, TupperError
from tupper.core.liveness import is_alive, wait_end

LAST_WORDS_BYTES = 64 * 1024
KILL_TIMEOUT_S = 10.0


def find_group(host_name: str) -> Cgroup | None:
    """The control group of a machine with this name; None where the host gives us none."""
    hierarchy = find_hierarchy() if os.geteuid() == 0 else None
    return Cgroup.named(hierarchy, host_name) if hierarchy and host_name else None


async def stop(record: MachineRecord, remove: Callable[[], Awaitable[None]]) -> None:
    """End a machine and see that its process is gone.

    Args:
        record: of the machine.
        remove: ends all its processes and removes all traces.

    Raises:
        MachineFailed: a process does not end, or something could not be removed.
    """
    began = time.monotonic()
    await remove()
    pid, ticks = record.pid, record.start_ticks
    if is_alive(pid, ticks):
        try:
            await asyncio.wait_for(wait_end(pid, ticks), KILL_TIMEOUT_S)
        except TimeoutError:
            raise MachineFailed(f"process {pid} of {record.backend} does not end") from None
    log.event(
        "machine.stopped",
        sandbox=record.sandbox_id,
        backend=record.backend,
        stop_s=time.monotonic() - began,
    )


async def remove(
    backend: str, *, kill: Awaitable[bool], steps: Iterable[Callable[[], object]]
) -> None:
    """Remove all traces of a machine. Each step is tried whatever became of the others.

    Args:
        backend: its name, for the error.
        kill: ends the processes; whether none is left.
        steps: block, and raise OSError or TupperError; run in a thread, in this order.

    Raises:
        MachineFailed: something could not be removed; the first cause is in the text.
    """
    errors = [] if await kill else ["a process does not end"]
    errors += await asyncio.to_thread(_try_all, steps)
    if errors:
        raise MachineFailed(f"a {backend} machine could not be removed: {'; '.join(errors)}")


def _try_all(steps: Iterable[Callable[[], object]]) -> list[str]:
    errors: list[str] = []
    for step in steps:
        try:
            step()
        except (OSError, TupperError) as error:
            errors.append(str(error))
    return errors


def remove_group(group: Cgroup | None) -> None:
    """Remove a machine's control group, if it has one.

    One that is busy although nothing is in it is left.

    Raises:
        OSError: it stays, and not for that reason.
    """
    for error in group.remove() if group is not None else ():
        if error.errno != errno.EBUSY or (group is not None and group.pids()):
            raise error


def tail(path: Path) -> str:
    """The end of a file that may be anything by now: only what is really a file is read.

    At most ``LAST_WORDS_BYTES``; empty if there is none.
    """
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                file.seek(max(0, status.st_size - LAST_WORDS_BYTES))
                return file.read(LAST_WORDS_BYTES).decode(errors="replace").strip("\0")
    return ""


def taken_bytes(image: str) -> int:
    """The bytes that a sparse file takes on the host; 0 where there is none."""
    with contextlib.suppress(OSError):
        return Path(image).stat().st_blocks * 512 if image else 0
    return 0
