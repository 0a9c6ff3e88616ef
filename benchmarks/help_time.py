"""``tupper --help``, against a Python that does nothing."""

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.harness import compare, interleave


def measure(options: argparse.Namespace) -> dict[str, object]:
    command = [str(Path(sysconfig.get_path("scripts")) / "tupper"), "--help"]
    nothing = [sys.executable, "-c", "pass"]
    times = interleave(
        {
            "tupper_help": lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True),
            "python_nothing": lambda: subprocess.run(nothing, check=True),
        },
        options.repeat,
    )
    return compare(times, "tupper_help", "python_nothing")
