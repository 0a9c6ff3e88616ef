"""What a sandbox costs that does nothing: memory (PSS) and CPU, against a raw ``sleep``."""

import argparse
import time
from pathlib import Path

from benchmarks.harness import (
    background_pid,
    context_switches,
    cpu_seconds,
    descendants,
    pss_bytes,
    rss_bytes,
)
from benchmarks.raw import raw_runsc
from tupper import Sandbox

_WATCH_S = 20.0
_SETTLE_S = 4.0


def measure(options: argparse.Namespace) -> dict[str, object]:
    count = max(3, min(options.count, 10))
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    made: list[Sandbox] = []
    names: list[str] = []
    with raw_runsc(options.platform) as raw:

        def pids() -> dict[str, list[int]]:
            ours = _machines([box.sandbox_id for box in made])
            return {
                "ours": [p for pid in ours for p in _family(pid)],
                "raw": [p for name in names for p in _family(raw.pid(name))],
            }

        def more(number: int) -> dict[str, int]:
            """Make so many of each, let them settle, and measure all that there are."""
            for _ in range(number):
                made.append(Sandbox.create(timeout=900, **extra))
                names.append(raw.start("/bin/sleep", "1000000"))
            time.sleep(_SETTLE_S)
            return {kind: pss_bytes(found) for kind, found in pids().items()}

        try:
            # Pages that all share count in the first ones, so the others show what one more costs.
            first, all_of_them = more(2), more(count - 2)
            background = background_pid()
            switches = context_switches(background)
            usage = _watch({**pids(), "background": [background]})
            switches = context_switches(background) - switches
            memory = {"rss": rss_bytes(background), "pss": pss_bytes([background])}
        finally:
            for box in made:
                box.kill()
    marginal = {kind: (all_of_them[kind] - first[kind]) / (count - 2) for kind in first}
    return {
        "count": count,
        "marginal_pss_mb": {kind: round(value / 1e6, 2) for kind, value in marginal.items()},
        "pss_ratio": round(marginal["ours"] / marginal["raw"], 3),
        "cpu_percent_of_a_core_each": {kind: round(usage[kind] / count, 3) for kind in first},
        "more_than_raw_percent": round((usage["ours"] - usage["raw"]) / count, 3),
        "background_mb": {kind: round(value / 1e6, 1) for kind, value in memory.items()},
        "background_cpu_percent": round(usage["background"], 3),
        "background_wakes_per_s": round(switches / _WATCH_S, 2),
    }


def _watch(groups: dict[str, list[int]]) -> dict[str, float]:
    """Per cent of one core that each group uses."""
    before = {name: cpu_seconds(pids) for name, pids in groups.items()}
    started = time.monotonic()
    time.sleep(_WATCH_S)
    elapsed = time.monotonic() - started
    return {n: (cpu_seconds(p) - before[n]) / elapsed * 100 for n, p in groups.items()}


def _family(pid: int) -> list[int]:
    """The machine with its helpers: gVisor's gofer is a sibling with the same container id."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    name = next((word for word in reversed(words) if word), b"")
    found = {pid}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if arguments[0].startswith(b"runsc") and name in arguments:
                found |= set(descendants(int(entry.name)))
    return sorted(found | set(descendants(pid)))


def _machines(sandbox_ids: list[str]) -> list[int]:
    """The process of each sandbox's kernel, found by its command line."""
    pids: list[int] = []
    for sandbox_id in sandbox_ids:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"runsc-sandbox") and sandbox_id.encode() in line:
                pids.append(int(entry.name))
                break
    return pids
