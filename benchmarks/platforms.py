"""gVisor's two ways to run a guest, systrap and ptrace, by what a user feels of each.

Making one, a login shell, many small processes, many system calls, plain computing.
"""

import argparse

from benchmarks.harness import interleave, spread
from tupper import Sandbox

_PROCESSES = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done"
_CALLS = "import os\nfor _ in range(20000): os.stat('/')"
_COMPUTING = "x = 0\nfor i in range(2000000): x += i * i"


def measure(options: argparse.Namespace) -> dict[str, object]:
    names = ("systrap", "ptrace")
    boxes = {name: _make(name) for name in names}
    works = {
        "command": lambda box: box.commands.run("true"),
        "ten_processes": lambda box: box.commands.run(_PROCESSES),
        "system_calls": lambda box: box.commands.run(["python3", "-c", _CALLS]),
        "computing": lambda box: box.commands.run(["python3", "-c", _COMPUTING]),
    }
    result: dict[str, object] = {}
    try:
        for work, function in works.items():
            times = interleave(
                {name: (lambda n=name, f=function: f(boxes[n])) for name in names},
                max(5, options.repeat // 2),
            )
            result[work] = {f"{name}_ms": spread(values) for name, values in times.items()}
    finally:
        for box in boxes.values():
            box.kill()
    lives = interleave({name: (lambda n=name: _make(n).kill()) for name in names}, options.repeat)
    result["create_and_kill"] = {f"{name}_ms": spread(values) for name, values in lives.items()}
    result["ptrace_to_systrap"] = {
        work: round(_median(value, "ptrace") / _median(value, "systrap"), 3)
        for work, value in result.items()
    }
    return result


def _make(platform: str) -> Sandbox:
    return Sandbox.create(user="root", backend_options={"platform": platform})


def _median(value: object, name: str) -> float:
    return float(value[f"{name}_ms"]["median"])
