"""Control groups: the limits that hold a machine from outside, and the list of its processes.

A machine gets one group of its own in the hierarchy of version 2, or one in each of version 1's
``memory`` and ``cpu`` hierarchies. We make, fill and remove it ourselves, because that takes a
millisecond where the runtimes need thirty. The group is also the surest answer to "which processes
belong to this machine": it needs no pid that could have been used again.

With version 1 it lies at the top, where it weighs as much as one process of the host or one of its
sessions. Each group in between would cost a guest's fork a sixth of its time
(docs/design/performance.md), and make all sandboxes weigh as much as one process together. With
version 2 everything else is in groups of its own too, so there is one for all of ours.

Source: kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/{memory,cpuacct}.rst.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tupper.core.liveness import kill_all

_PERIOD_US = 100_000
_PARENT = "tupper"
_POLL_S = 0.002
_EMPTIES_S = 5.0
# $1 is how many files follow; our pid goes into each, and what is left is the program. All that it
# starts is the kernel's first choice when the group is out of memory; the program itself may be set
# back to 0 afterwards (which needs no privilege, as it was there before). Source: proc(5).
#
# Moving a process holds up every fork of the host for a grace period of the kernel's (7 to 28 ms
# here); a thread that moves itself does not. Source: kernel/cgroup/cgroup.c,
# cgroup_procs_write_start ("if the thread is current").
_JOIN = (
    "echo 500 >/proc/self/oom_score_adj; n=$1; shift; "
    'while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 125; shift; n=$((n-1)); done; '
    'exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups can be made on this host.

    Args:
        version: 1 or 2.
        roots: controller → directory. With version 2 all are the same.
    """

    version: int
    roots: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may use; None means no limit.

    Args:
        memory_bytes: RAM and page cache, without swap.
        cpus: cores, may be fractional.
    """

    memory_bytes: int | None = None
    cpus: float | None = None


def find_hierarchy(mounts: str | None = None) -> Hierarchy | None:
    """The hierarchy that carries the memory controller, or None.

    Args:
        mounts: the text of ``/proc/self/mounts``; if None it is read, once: the list has a line for
            each sandbox, and where the hierarchies are does not change.
    """
    return _host_hierarchy() if mounts is None else _parse_mounts(mounts)


@functools.cache
def _host_hierarchy() -> Hierarchy | None:
    return _parse_mounts(Path("/proc/self/mounts").read_text())


def _parse_mounts(text: str) -> Hierarchy | None:
    roots: dict[str, Path] = {}
    unified: Path | None = None
    for line in text.splitlines():
        _, where, kind, options, *_ = line.split()
        path = Path(where.encode().decode("unicode_escape"))
        if kind == "cgroup":
            for controller in {"memory", "cpu", "cpuacct"} & set(options.split(",")):
                roots.setdefault(controller, path)
        elif kind == "cgroup2":
            unified = path
    if unified is not None and _has_memory(unified):
        return Hierarchy(2, {"memory": unified, "cpu": unified})
    return Hierarchy(1, roots) if "memory" in roots else None


def _has_memory(root: Path) -> bool:
    with contextlib.suppress(OSError):
        return "memory" in (root / "cgroup.controllers").read_text().split()
    return False


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One group of one machine.

    Args:
        version: of the hierarchy.
        paths: its directories, the memory controller's first.
    """

    version: int
    paths: tuple[Path, ...]

    @classmethod
    def named(cls, hierarchy: Hierarchy, name: str) -> Cgroup:
        """The group of this name, which may not exist."""
        roots = [hierarchy.roots["memory"], *hierarchy.roots.values()]
        places = (_place(hierarchy.version, root, name) for root in roots)
        return cls(hierarchy.version, tuple(dict.fromkeys(places)))

    @classmethod
    def find(cls, hierarchy: Hierarchy, start: str) -> dict[str, Cgroup]:
        """The groups whose names start like this, by name."""
        found = [
            path.name
            for root in dict.fromkeys(hierarchy.roots.values())
            for pattern in (f"{start}*", f"{_PARENT}/{start}*")
            for path in root.glob(pattern)
        ]
        return {name: cls.named(hierarchy, name) for name in found}

    @classmethod
    def create(cls, hierarchy: Hierarchy, name: str, limits: Limits) -> Cgroup:
        """Make a group with limits.

        Raises:
            OSError: the hierarchy cannot be written to.
        """
        group = cls.named(hierarchy, name)
        try:
            for path in group.paths:
                if hierarchy.version == 2:  # children get a controller only if parents pass it on
                    path.parent.mkdir(exist_ok=True)
                    _delegate((path.parent.parent, path.parent))
                path.mkdir(exist_ok=True)
            group.limit(limits)
        except BaseException:
            group.remove()
            raise
        return group

    def limit(self, limits: Limits) -> None:
        """Set the limits; one that the whole host keeps anyway is left out, as it costs time."""
        memory, cpu = self.paths[0], self._with("cpu.max", "cpu.cfs_quota_us")
        if limits.memory_bytes is not None:
            _limit_memory(memory, self.version, limits.memory_bytes)
        if limits.cpus is not None and limits.cpus < (os.cpu_count() or 1) and cpu is not None:
            quota = max(1000, round(limits.cpus * _PERIOD_US))
            if self.version == 2:
                (cpu / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            else:
                (cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (cpu / "cpu.cfs_quota_us").write_text(str(quota))

    def _with(self, *names: str) -> Path | None:
        """The directory that has one of these files."""
        return next((p for p in self.paths for name in names if (p / name).exists()), None)

    @contextlib.contextmanager
    def holding_thread(self) -> Generator[bool]:
        """Have the calling thread alone in the group, and with it what it starts meanwhile.

        Returns:
            False where that cannot be: a group of version 2 takes whole processes only.
        """
        if self.version == 2:
            yield False
            return
        try:
            for path in self.paths:
                (path / "tasks").write_text("0")
            yield True
        finally:
            for path in self.paths:
                with contextlib.suppress(OSError):
                    (_top(path) / "tasks").write_text("0")

    def joining(self, argv: Sequence[str], *, inside: bool = False) -> list[str]:
        """A command line that enters the group and then becomes ``argv``.

        What it starts is the first to be ended when memory is short.

        The shell is there because a group of version 2 takes whole processes only, and nothing
        may run between fork and exec in a program with threads.

        Args:
            argv: the program and its arguments.
            inside: it is started in the group already.
        """
        files = [] if inside else [str(path / "cgroup.procs") for path in self.paths]
        return ["/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files, *argv]

    def pids(self) -> set[int]:
        """The processes in the group."""
        found: set[int] = set()
        for path in self.paths:
            with contextlib.suppress(OSError):
                found.update(int(word) for word in (path / "cgroup.procs").read_text().split())
        return found

    async def kill(self, *, timeout_s: float) -> bool:
        """SIGKILL all processes in the group, again until none is left.

        Returns:
            Whether the group is empty.
        """
        return await kill_all(self.pids, timeout_s=timeout_s)

    def remove(self) -> list[OSError]:
        """Remove the empty group. Idempotent; what failed is returned. Blocks, as a rule briefly.

        A process is listed no more once all its threads have begun to end, and until they have
        ended, which takes as long as its memory is large, the group is busy. Source:
        kernel/cgroup/cgroup.c, css_task_iter_advance and cgroup_is_populated.
        """
        deadline = time.monotonic() + _EMPTIES_S
        errors: list[OSError] = []
        for path in self.paths:
            while (error := _remove_directory(path)) is not None:
                is_ending = error.errno == errno.EBUSY and not self.pids()
                if not is_ending or time.monotonic() > deadline:
                    errors.append(error)
                    break
                time.sleep(_POLL_S)
        return errors

    def oom_kills(self) -> int:
        """How many processes the kernel has ended because the group was at its memory limit."""
        names = ("memory.events", "memory.oom_control")
        return _keyed_number(self.paths[0], names, "oom_kill")

    def memory_bytes(self) -> int:
        """What is charged to the group now."""
        files = [self.paths[0] / name for name in ("memory.current", "memory.usage_in_bytes")]
        return max(map(_number, files))

    def cpu_s(self) -> float:
        """Seconds of CPU that its processes have used."""
        for path in self.paths:
            with contextlib.suppress(OSError, ValueError):
                return int((path / "cpuacct.usage").read_text()) / 1e9
        return _keyed_number(self.paths[0], ("cpu.stat",), "usage_usec") / 1e6


def _place(version: int, root: Path, name: str) -> Path:
    below = root / _PARENT / name
    # With version 1 only those that an earlier tupper made, which went on below its parent.
    return below if version == 2 or below.is_dir() else root / name


def _top(path: Path) -> Path:
    return path.parents[1] if path.parent.name == _PARENT else path.parent


def _remove_directory(path: Path) -> OSError | None:
    try:
        path.rmdir()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def _limit_memory(group: Path, version: int, limit: int) -> None:
    if version == 2:
        (group / "memory.max").write_text(str(limit))
        names = ["memory.swap.max"]
        value = 0
    else:  # memory may never exceed memory and swap, so the order is not the same both ways
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if _number(group / names[0]) < limit:
            names.reverse()
        value = limit
    for name in names:
        if (group / name).exists():  # absent where the kernel does not account swap
            (group / name).write_text(str(value))


def _number(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _delegate(directories: Iterable[Path]) -> None:
    for directory in directories:
        for controller in ("memory", "cpu"):
            with contextlib.suppress(OSError):  # one that is missing shows at its limit's file
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def _keyed_number(directory: Path, names: Iterable[str], key: str) -> int:
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            for line in (directory / name).read_text().splitlines():
                word, _, number = line.partition(" ")
                if word == key:
                    return int(number)
    return 0
