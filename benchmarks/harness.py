"""What the benchmarks share: time, spread, the machine, the memory of processes."""

import contextlib
import ctypes
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tupper.core.paths import find_paths


def describe_machine() -> dict[str, object]:
    """What the numbers depend on."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in _lines("/proc/cpuinfo")
            if "model name" in line
        ),
        platform.processor(),
    )
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo")), 0)
    system = next(
        (
            line.partition("=")[2].strip('"')
            for line in _lines("/etc/os-release")
            if line.startswith("PRETTY")
        ),
        platform.system(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_mib": memory_kib // 1024,
        "kernel": platform.release(),
        "system": system,
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "ordinary",
    }


def load_average() -> list[float]:
    """Of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def taking_turns(functions: Sequence[Callable[[], object]], repeat: int) -> None:
    """Call each ``repeat`` times; the order is turned round each time: A B, B A, A B."""
    for turn in range(repeat):
        for function in functions if turn % 2 == 0 else reversed(functions):
            function()


def interleave(functions: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Time each function ``repeat`` times, in turns, after one turn that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in functions}

    def measured(name: str, function: Callable[[], object]) -> Callable[[], None]:
        return lambda: times[name].append(timed(function))

    taking_turns([measured(*item) for item in functions.items()], repeat + 1)
    return {name: values[1:] for name, values in times.items()}


def spread(seconds: Sequence[float], *, unit: float = 1000.0) -> dict[str, float]:
    """Median, best and worst; in milliseconds unless another unit is given."""
    return {
        "median": round(statistics.median(seconds) * unit, 3),
        "min": round(min(seconds) * unit, 3),
        "max": round(max(seconds) * unit, 3),
        "n": len(seconds),
    }


def compare(times: dict[str, list[float]], ours: str, reference: str) -> dict[str, object]:
    """Spreads in milliseconds and the ratio of the medians."""
    result: dict[str, object] = {f"{name}_ms": spread(values) for name, values in times.items()}
    ratio = statistics.median(times[ours]) / statistics.median(times[reference])
    result["ratio"] = round(ratio, 3)
    # The best of each is what the machine can do when nobody else uses it.
    result["ratio_of_the_best"] = round(min(times[ours]) / min(times[reference]), 3)
    result["reference"] = reference
    return result


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += children.get(found[-1], [])
    return found


def pss_bytes(pids: Sequence[int]) -> int:
    """Proportional set size: shared pages are divided among those that share them.

    The tasks in which gVisor's systrap runs a guest's threads are processes of their own for the
    host, which share one address space; the kernel tells its size for each of them.
    """
    total = 0
    for pid in _one_of_each_space(pids):
        for line in _lines(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _one_of_each_space(pids: Sequence[int]) -> list[int]:
    kept: list[int] = []
    for pid in pids:
        if not any(_share_space(pid, other) for other in kept):
            kept.append(pid)
    return kept


def _share_space(one: int, other: int) -> bool:
    """Source: kcmp(2), KCMP_VM."""
    number = {"x86_64": 312, "aarch64": 272}[platform.machine()]
    return ctypes.CDLL(None).syscall(number, one, other, 1, 0, 0) == 0


def rss_bytes(pid: int, which: str = "VmRSS") -> int:
    """Resident set size, or with ``VmHWM`` the highest so far."""
    return next(
        (
            int(line.split()[1]) * 1024
            for line in _lines(f"/proc/{pid}/status")
            if line.startswith(which)
        ),
        0,
    )


def background_pid() -> int:
    """The background process of this tupper."""
    return int((find_paths().runtime / "pid").read_text())


@contextlib.contextmanager
def peak_growth_mb(pids: dict[str, int]) -> Iterator[dict[str, float]]:
    """How much more memory each process had at its highest than before, filled in at the end.

    Source: proc(5): writing 5 to ``clear_refs`` resets the peak ``VmHWM``.
    """
    before = {}
    for name, pid in pids.items():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        before[name] = rss_bytes(pid)
    growth: dict[str, float] = {}
    yield growth
    for name, pid in pids.items():
        growth[name] = round((rss_bytes(pid, "VmHWM") - before[name]) / 1e6, 1)


def context_switches(pid: int) -> int:
    """How often a process went to sleep by itself: it was awake as often."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in _lines(f"{task}/status"):
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum((int(f[11]) + int(f[12])) / ticks for pid in pids if (f := _stat(pid)))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; Source: proc(5)."""
    text = "".join(_lines(f"/proc/{pid}/stat"))
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
