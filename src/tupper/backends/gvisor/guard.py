"""Limits for machines that have no control group: look now and then, and end the greedy.

An ordinary user whose host delegates no control groups has no means to make the kernel refuse
memory or disk to gVisor. What it uses is known exactly, though: the guest's memory is one file in
memory, what the guest writes another one on disk, and the engine may look at both. This is a
guard of the host, not a limit: a guest can go over for a moment, and is then ended as a whole.

Source: proc(5), ``/proc/PID/fd``; the names are those of gVisor's ``pgalloc`` and its overlay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tupper.core.lifecycle import EndReason

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Use:
    """What a machine uses.

    Args:
        memory_bytes: of the guest.
        disk_bytes: that the guest wrote.
    """

    memory_bytes: int = 0
    disk_bytes: int = 0


def measure(pid: int, disk: Path) -> Use:
    """What the machine of this process uses; nothing if it is gone.

    Args:
        pid: of gVisor's kernel.
        disk: the directory that holds what the guest writes.
    """
    memory = written = 0
    seen: set[tuple[int, int]] = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = Path(entry.path).readlink()
                is_memory = str(name).startswith("/memfd:runsc-memory")
                if not is_memory and not name.is_relative_to(disk):
                    continue
                status = Path(entry.path).stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                memory += status.st_blocks * 512 if is_memory else 0
                written += 0 if is_memory else status.st_blocks * 512
    return Use(memory, written)


async def watch(pid: int, disk: Path, *, memory_bytes: int, disk_bytes: int) -> EndReason:
    """Return when a machine uses more than it may."""
    while True:
        use = await asyncio.to_thread(measure, pid, disk)
        if use.memory_bytes > memory_bytes:
            return EndReason.OUT_OF_MEMORY
        if use.disk_bytes > disk_bytes:
            return EndReason.OUT_OF_DISK
        await asyncio.sleep(LOOK_EVERY_S)
