"""Many commands on one sandbox, many lives of sandboxes; growth and leaks. Bounded by options."""

import argparse
from pathlib import Path

from benchmarks.harness import rss_bytes, spread, timed
from tupper import Sandbox
from tupper.core.paths import find_paths

_PARTS = 10


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with Sandbox.create(timeout=24 * 3600, **extra) as sbx:
        pid_file = find_paths().runtime / "pid"
        memory: list[float] = []
        times: list[float] = []
        for number in range(options.commands):
            times.append(timed(lambda: sbx.commands.run("true")))
            if number % max(1, options.commands // _PARTS) == 0:
                memory.append(round(rss_bytes(int(pid_file.read_text())) / 1e6, 1))
        processes = len(sbx.commands.list())
    before = _places()
    lives = [timed(lambda: _life(extra)) for _ in range(options.cycles)]
    return {
        "commands": len(times),
        "command_ms": spread(times),
        "first_tenth_ms": spread(times[: max(1, len(times) // 10)]),
        "last_tenth_ms": spread(times[-max(1, len(times) // 10) :]),
        "processes_left_inside": processes,
        "background_rss_mb": memory,
        "lives": len(lives),
        "life_ms": spread(lives) if lives else None,
        "left_on_the_host": sorted(_places() - before),
    }


def _life(extra: dict[str, object]) -> None:
    with Sandbox.create(**extra) as sbx:
        sbx.commands.run("true")


def _places() -> set[str]:
    """Namespaces, links, sockets: what is new afterwards is a leak, or a neighbour's."""
    found = {f"netns {p.name}" for p in Path("/run/netns").glob("*")}
    found |= {f"link {p.name}" for p in Path("/sys/class/net").glob("*")}
    paths = find_paths()
    found |= {f"socket {p.name}" for p in (paths.runtime / "s").glob("*")}
    return found | {f"directory {p.name}" for p in (paths.data / "sandboxes").glob("*")}
