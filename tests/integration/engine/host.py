"""A background process of its own with real machines."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from tupper.core.errors import TupperError
from tupper.guest import find_agent_binary

ROOT = Path(__file__).parents[3]


def why_not() -> str:
    if os.geteuid() != 0:
        return "needs root"
    try:
        find_agent_binary()
    except TupperError as error:
        return error.message
    from tupper.backends.gvisor import GVisor
    from tupper.core.backend import BackendContext

    home = Path(os.environ["TUPPER_HOME"])
    probe = asyncio.run(GVisor(BackendContext(home, "probe", {})).probe())
    return "" if probe.usable else probe.reason


class Host:
    """A background process of its own, with its own home."""

    def __init__(self, home: Path) -> None:
        self.env = os.environ | {"TUPPER_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
        from tupper.core.paths import find_paths

        self.paths = find_paths(self.env)
        self.process = None

    def start(self) -> None:
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tupper.server", "--background", "--ready-fd", str(write)],
            env=self.env, pass_fds=(write,), start_new_session=True,
        )  # fmt: skip
        os.close(write)
        with os.fdopen(read) as ready:
            line = ready.readline()
        assert line.startswith("ready unix:"), line

    def kill_9(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def client(self):
        transport = httpx2.HTTPTransport(uds=str(self.paths.socket))
        return httpx2.Client(transport=transport, base_url="http://t", timeout=120)

    def machine(self, sandbox_id):
        import sqlite3

        db = sqlite3.connect(self.paths.data / "tupper.db")
        try:
            (text,) = db.execute(
                "SELECT record FROM sandboxes WHERE id = ?", (sandbox_id,)
            ).fetchone()
        finally:
            db.close()
        return json.loads(text)["machine"]

    def leftovers(self):
        found = [str(p) for p in (self.paths.data / "sandboxes").iterdir()]
        found += [str(p) for p in (self.paths.runtime / "s").iterdir()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return found + [line for line in mounts if str(self.paths.data / "sandboxes") in line]
