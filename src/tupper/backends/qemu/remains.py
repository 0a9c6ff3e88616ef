"""Everything that a machine has on the host, dead or alive, and how it is removed.

Its processes are in one control group, or carry a mark in their environment where there is none.
Nothing else of it is on the host but one directory: the TAP goes with QEMU, and the bridge with the
network's namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu.launch import MARK
from tupper.backends.qemu.layout import Layout
from tupper.core import remains
from tupper.core.cgroup import Cgroup
from tupper.core.liveness import find_carrying, kill_all
from tupper.core.remains import LAST_WORDS_BYTES, tail
from tupper.core.userns import remove_tree


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

        Raises:
            MachineFailed: something could not be removed; the first cause is in the text.
        """
        steps: list[Callable[[], object]] = [
            lambda: remains.remove_group(self.cgroup),
            lambda: remove_tree(self.layout.base),
        ]
        kill = kill_all(self.pids, timeout_s=remains.KILL_TIMEOUT_S)
        await remains.remove("qemu", kill=kill, steps=steps)

    def console(self) -> str:
        """What the guest's kernel said last; at most 64 KiB."""
        files = (self.layout.older_console, self.layout.console)
        return "".join(tail(file) for file in files)[-LAST_WORDS_BYTES:]

    def last_words(self) -> str:
        """What QEMU, the relay and the guest's kernel said last; at most 64 KiB."""
        said = [tail(self.layout.output), tail(self.layout.relay_output), self.console().strip()]
        return "\n".join(text for text in said if text)[-LAST_WORDS_BYTES:]


def remains_of(directory: Path, host_name: str) -> Remains:
    """What a machine with these names has, or would have, on the host."""
    group = remains.find_group(host_name)
    return Remains(Layout(directory / "machine"), host_name, group)


def find_marked(host_name: str) -> set[int]:
    """The living processes that were started for a machine of this name."""
    return find_carrying(f"{MARK}={host_name}", file="environ") if host_name else set()
