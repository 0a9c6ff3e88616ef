"""Everything that a machine has on the host, dead or alive, and how it is removed.

Its processes are in one control group, or carry a mark in their environment where there is none.
Nothing else of it is on the host but one directory: the TAP goes with QEMU, and the bridge with the
network's namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu.launch import MARK
from tupper.backends.qemu.layout import Layout
from tupper.core.cgroup import Cgroup, find_hierarchy
from tupper.core.errors import MachineFailed, TupperError
from tupper.core.userns import remove_tree

_LAST_WORDS = 64 * 1024
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left, or would be.

    Args:
        layout: its files.
        host_name: marks its processes.
        cgroup: None where the host gives us none.
    """

    layout: Layout
    host_name: str
    cgroup: Cgroup | None

    def pids(self) -> set[int]:
        """Its living processes."""
        if self.cgroup is not None:
            return self.cgroup.pids()
        return find_marked(self.host_name)

    async def remove(self) -> None:
        """End all processes and remove all traces. Idempotent.

        Each step is tried whatever became of the others.

        Raises:
            MachineFailed: something could not be removed; the first cause is in the text.
        """
        errors = [] if await self._kill() else ["a process does not end"]
        steps: list[Callable[[], object]] = [
            self._remove_group,
            lambda: remove_tree(self.layout.base),
        ]
        errors += await asyncio.to_thread(_try_all, steps)
        if errors:
            raise MachineFailed(f"a qemu machine could not be removed: {'; '.join(errors)}")

    async def _kill(self) -> bool:
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while pids := self.pids() - {os.getpid()}:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _remove_group(self) -> None:
        for error in self.cgroup.remove() if self.cgroup is not None else ():
            if error.errno != errno.EBUSY or self.pids():
                raise error

    def console(self) -> str:
        """What the guest's kernel said last; at most 64 KiB."""
        files = (self.layout.older_console, self.layout.console)
        return "".join(tail(file) for file in files)[-_LAST_WORDS:]

    def last_words(self) -> str:
        """What QEMU, the relay and the guest's kernel said last; at most 64 KiB."""
        said = [tail(self.layout.output), tail(self.layout.relay_output), self.console().strip()]
        return "\n".join(text for text in said if text)[-_LAST_WORDS:]


def remains_of(directory: Path, host_name: str) -> Remains:
    """What a machine with these names has, or would have, on the host."""
    hierarchy = find_hierarchy() if os.geteuid() == 0 else None
    cgroup = Cgroup.named(hierarchy, host_name) if hierarchy and host_name else None
    return Remains(Layout(directory / "machine"), host_name, cgroup)


def find_marked(host_name: str) -> set[int]:
    """The living processes that were started for a machine of this name."""
    mark = f"{MARK}={host_name}".encode()
    found: set[int] = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found if host_name else set()


def tail(path: Path) -> str:
    """The end of a file that may be anything by now: only what is really a file is read."""
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                file.seek(max(0, status.st_size - _LAST_WORDS))
                return file.read(_LAST_WORDS).decode(errors="replace").strip("\0")
    return ""


def _try_all(steps: list[Callable[[], object]]) -> list[str]:
    errors: list[str] = []
    for step in steps:
        try:
            step()
        except (OSError, TupperError) as error:
            errors.append(str(error))
    return errors
