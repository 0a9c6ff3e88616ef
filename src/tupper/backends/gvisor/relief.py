"""Room for gVisor while the host's kernel makes some by force.

All memory of a guest is one file of gVisor's kernel. So when the host's kernel ends a process
because the machine is at its limit, nothing is free yet: gVisor first has to notice and to give the
memory back, which takes memory. Without any it is stuck, and the host ends one process after the
other until none is left, gVisor last. Therefore a machine that meets its limit may exceed it for a
moment, by a bounded amount, and is led back as soon as the memory has been given back.

Source: kernel documentation, admin-guide/cgroup-v1/memory.rst, sections 9 and 10 (``eventfd`` on
``memory.oom_control``). Groups of version 2 have no such event with a descriptor to wait for; there
the kernel's choice alone holds (:mod:`tupper.backends.gvisor.spare`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Self

from tupper.core.cgroup import Cgroup, Limits

_STEP_BYTES = 64 << 20
_MOST_EXTRA = 0.5
_LOOK_AGAIN_S = 0.2


async def relieve(cgroup: Cgroup, limit_bytes: int) -> None:
    """Watch one group until cancelled, and lift its limit for a moment each time it is met.

    Returns at once where the host has no such event.

    Args:
        cgroup: the machine's.
        limit_bytes: its limit, restored afterwards.
    """
    with contextlib.suppress(OSError), _LimitMet(cgroup.paths[0]) as event:
        lifted = False
        while True:
            if await event.wait(_LOOK_AGAIN_S if lifted else None):
                _lift(cgroup, limit_bytes)
                lifted = True
            else:
                lifted = not _lead_back(cgroup, limit_bytes)


def _lift(cgroup: Cgroup, limit_bytes: int) -> None:
    most = limit_bytes + round(limit_bytes * _MOST_EXTRA)
    wanted = max(limit_bytes, cgroup.memory_bytes()) + _STEP_BYTES
    cgroup.limit(Limits(memory_bytes=min(most, wanted)))


def _lead_back(cgroup: Cgroup, limit_bytes: int) -> bool:
    """Restore the limit if what is in use fits it; else see to it that nothing more is taken."""
    used = cgroup.memory_bytes()
    with contextlib.suppress(BlockingIOError):  # it has grown in between: look again
        cgroup.limit(Limits(memory_bytes=max(limit_bytes, used)))
        return used <= limit_bytes
    return False


class _LimitMet:
    """The kernel's event that a group has met its limit.

    Raises:
        OSError: on entry, where there is no such event.
    """

    def __init__(self, group: Path) -> None:
        self._group = group
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = os.open(self._group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (self._group / "cgroup.event_control").write_text(f"{self._fd} {control}")
            finally:
                os.close(control)
        except BaseException:
            os.close(self._fd)
            raise
        asyncio.get_running_loop().add_reader(self._fd, self._ring)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """Whether it has come within the time; None waits for as long as it takes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        met = self._event.is_set()
        self._event.clear()
        return met
