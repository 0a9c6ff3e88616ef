"""A real ``tupper serve`` with a key, in the place of the background process."""

import contextlib
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest

from e2e.e2b.places import places
from tupper.core.paths import find_paths


@dataclass
class Served:
    """A server: its URL, a key, and two addresses that a sandbox can be kept from."""

    url: str
    key: str
    places: str
    outcomes: dict = field(default_factory=dict)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server in the foreground, in the place of the background process."""
    _end_background_process()
    command = [sys.executable, "-m", "tupper", "serve", "--listen", "127.0.0.1:0"]
    said = tmp_path_factory.mktemp("serve") / "stderr"
    with (
        places() as found,
        said.open("w") as stderr,
        subprocess.Popen(command, stderr=stderr) as server,
    ):
        try:
            url = _listening(server, said)
            key = subprocess.run(
                [sys.executable, "-m", "tupper", "key", "create"],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout.strip()
            yield Served(url, key, found)
        finally:
            server.terminate()


def _listening(server, said):
    end = time.monotonic() + 60
    while not (found := re.search(r"http://\S+", said.read_text())):
        assert server.poll() is None, f"tupper serve ended: {said.read_text()}"
        assert time.monotonic() < end, "tupper serve did not listen within 60 s"
        time.sleep(0.05)
    return found[0]


def _end_background_process():
    from tupper.cli._control import _call

    address = find_paths().address_file
    if not address.exists():
        return
    pid = int((find_paths().runtime / "pid").read_text())
    _call("POST", "/shutdown", {"force": True})
    end = time.monotonic() + 20
    while address.exists():
        assert time.monotonic() < end, "the background process did not leave"
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):  # another run may have started it
        os.waitpid(pid, 0)
