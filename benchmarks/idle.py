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


def measure(options: argparse.Namespace) -> dict[str, object]:
    count = max(2, min(options.count, 10))
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with raw_runsc(options.platform) as raw:
        names = [raw.start("/bin/sleep", "1000000") for _ in range(count)]
        raw_pids = [_family(raw.pid(name)) for name in names]
        made = [Sandbox.create(timeout=600, **extra) for _ in range(count)]
        try:
            daemon = background_pid()
            our_pids = [_family(pid) for pid in _machines([s.sandbox_id for s in made])]
            groups = {"ours": our_pids, "raw": raw_pids}
            watched = {k: [p for pids in v for p in pids] for k, v in groups.items()}
            switches = context_switches(daemon)
            usage = _watch({**watched, "background": [daemon]})
            switches = context_switches(daemon) - switches
            pss = {k: [pss_bytes(pids) for pids in v] for k, v in groups.items()}
            memory = {"rss": rss_bytes(daemon), "pss": pss_bytes([daemon])}
        finally:
            for sandbox in made:
                sandbox.kill()
    marginal = {k: sum(v[1:]) / len(v[1:]) for k, v in pss.items()}
    return {
        "count": count,
        "marginal_pss_mb": {k: round(v / 1e6, 2) for k, v in marginal.items()},
        "pss_ratio": round(marginal["ours"] / marginal["raw"], 3),
        "cpu_percent_of_a_core_each": {k: round(usage[k] / count, 3) for k in groups},
        "more_than_raw_percent": round((usage["ours"] - usage["raw"]) / count, 3),
        "background_mb": {k: round(v / 1e6, 1) for k, v in memory.items()},
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
