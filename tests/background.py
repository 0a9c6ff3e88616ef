"""The background process of the tests' own home."""

import contextlib
import os
import signal
import time

from tupper.core.liveness import start_ticks
from tupper.core.paths import find_paths


def kill_background():
    """Kill it with -9 and wait until it is gone."""
    pid = int((find_paths().runtime / "pid").read_text())
    ticks = start_ticks(pid)
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while start_ticks(pid) == ticks:
        assert time.monotonic() < end
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)  # where it was ours
