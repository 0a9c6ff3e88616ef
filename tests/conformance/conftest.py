"""For the suites whose tests are ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def run_example():
    """Runs an example of ``examples/integrations`` as its page says; what it prints."""

    def run(name):
        program = Path(os.environ["CONFORMANCE_ROOT"]) / "examples" / "integrations" / name
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
