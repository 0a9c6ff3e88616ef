"""Check a copy of ``packages/mastra`` and run its tests: ``run.py FILE...``, beside npm's packages."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(os.environ["CONFORMANCE_ROOT"]) / "packages" / "mastra"
MODULES = Path(os.environ["CONFORMANCE_NPM"]) / "node_modules"
JUNIT = os.environ["CONFORMANCE_JUNIT"]
REPORTERS = ("--reporter=default", "--reporter=junit", f"--outputFile.junit={JUNIT}")


def main(files: list[str]) -> int:
    """Types, format, then the test files with these words in their names; a status."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "package")
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
        (copy / "node_modules").symlink_to(MODULES)
        steps = (
            ("tsc", "--noEmit"),
            ("prettier", "--check", "."),
            ("vitest", "run", *REPORTERS, *files),
        )
        statuses = [_run(copy, *step) for step in steps]
        return max(statuses)


def _run(place: Path, tool: str, *arguments: str) -> int:
    command = [os.environ["CONFORMANCE_NODE"], str(MODULES / ".bin" / tool), *arguments]
    return subprocess.run(command, cwd=place, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
