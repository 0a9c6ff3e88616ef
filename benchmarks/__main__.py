"""Run benchmarks and print one JSON document: ``python -m benchmarks [NAME...] [--repeat N]``.

Every benchmark that compares runs its reference (raw ``runsc`` on the same root filesystem, same
program, same platform; or raw QEMU with the same kernel) interleaved with ours, so that a busy
machine disturbs both alike. A number from a machine that did something else meanwhile is worth
little: the load before and after stands in the document.
"""

import argparse
import importlib
import json
import sys

from benchmarks.harness import describe_machine, load_average

NAMES = (
    "help_time",
    "create_to_first_command",
    "command_roundtrip",
    "files_throughput",
    "parallel_create",
    "fork",
    "idle",
    "qemu_start",
    "qemu_exec",
    "qemu_files",
    "qemu_fork",
    "qemu_memory",
    "platforms",
    "through_e2b",
    "mcp_roundtrip",
    "soak",
)
_ON_REQUEST = frozenset({"soak"})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--repeat", type=int, default=10, help="measurements of each kind [10]")
    parser.add_argument("--count", type=int, default=20, help="sandboxes of parallel_create, idle")
    parser.add_argument("--commands", type=int, default=2000, help="commands of soak [2000]")
    parser.add_argument("--cycles", type=int, default=50, help="create/run/kill cycles of soak")
    parser.add_argument("--minutes", type=float, default=5, help="most minutes of soak [5]")
    parser.add_argument("--state", help="file with the totals of soak, to go on from there")
    parser.add_argument("--platform", help="of gVisor, for ours and the reference")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    document: dict[str, object] = {"machine": describe_machine(), "load_before": load_average()}
    results: dict[str, object] = {}
    for name in options.names or [n for n in NAMES if n not in _ON_REQUEST]:
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = importlib.import_module(f"benchmarks.{name}").measure(options)
    document |= {"results": results, "load_after": load_average()}
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
