"""QEMU: a command's round trip against the same fork and exec started by a program inside.

The program inside is Python, which starts with posix_spawn(3), the quickest there is, and waits.
"""

import argparse
import json

from benchmarks.harness import compare, spread, taking_turns, timed
from benchmarks.raw_qemu import MEMORY_MIB, find_qemu
from tupper import Sandbox

_EACH = 5
_INSIDE = """
import json, os, sys, time
argv, count = json.loads(sys.argv[1]), int(sys.argv[2])
times = []
for _ in range(count + 1):
    started = time.perf_counter()
    os.waitpid(os.posix_spawn(argv[0], argv, os.environ), 0)
    times.append(time.perf_counter() - started)
print(json.dumps(times[1:]))
"""
_COMMANDS = {
    "argv": (["/bin/true"], ["/bin/true"]),
    "login_shell": ("true", ["/bin/bash", "-l", "-c", "true"]),
}


def measure(options: argparse.Namespace) -> dict[str, object]:
    qemu = find_qemu()
    if isinstance(qemu, str):
        return {"skipped": qemu}
    extra = {"backend": "qemu", "memory": f"{MEMORY_MIB}m", "user": "root", "timeout": 1800}
    result: dict[str, object] = {"mechanism": qemu.mechanism}
    with Sandbox.create(**extra) as sbx:
        sbx.files.write("/tmp/inside.py", _INSIDE)
        for name, (ours, inside) in _COMMANDS.items():
            result[name] = _compare(sbx, ours, inside, options.repeat)
        result["empty_request_ms"] = spread([timed(sbx.commands.list) for _ in range(100)])
    return result


def _compare(sbx: Sandbox, command: object, argv: list[str], repeat: int) -> dict[str, object]:
    times: dict[str, list[float]] = {"round_trip": [], "inside": []}

    def ours() -> None:
        times["round_trip"] += [timed(lambda: sbx.commands.run(command)) for _ in range(_EACH)]

    def inside() -> None:
        words = ["python3", "/tmp/inside.py", json.dumps(argv), str(_EACH)]
        times["inside"] += json.loads(sbx.commands.run(words).stdout)

    taking_turns([ours, inside], repeat + 1)
    counted = {name: values[_EACH:] for name, values in times.items()}
    result = compare(counted, "round_trip", "inside")
    medians = {name: spread(values)["median"] for name, values in counted.items()}
    # What it may take: 1.2 times the inside one, and 2 ms for SDK and transport.
    result["of_the_limit"] = round(medians["round_trip"] / (1.2 * medians["inside"] + 2), 3)
    return result
