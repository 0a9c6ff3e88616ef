"""``tupper --help`` and ``from tupper import Sandbox``, against a Python that does nothing."""

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.harness import compare, interleave, spread


def measure(options: argparse.Namespace) -> dict[str, object]:
    command = [str(Path(sysconfig.get_path("scripts")) / "tupper"), "--help"]
    sdk = [sys.executable, "-c", "from tupper import Sandbox"]
    nothing = [sys.executable, "-c", "pass"]
    times = interleave(
        {
            "tupper_help": lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True),
            "import_sandbox": lambda: subprocess.run(sdk, check=True),
            "python_nothing": lambda: subprocess.run(nothing, check=True),
        },
        options.repeat,
    )
    result = compare(times, "tupper_help", "python_nothing")
    result["import_sandbox_ms"] = spread(times["import_sandbox"])
    return result
