"""The generated half is fresh; importing the package costs nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_imports_nothing_by_itself():
    heavy = ("httpx2", "asyncio", "yaml", "tupper.sdk")
    code = f"import sys, tupper; print([m for m in {heavy!r} if m in sys.modules])"
    assert _python(code) == "[]\n"


def test_the_sync_half_is_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_sync.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _python(code):
    env = {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout
