"""For the suites whose tests are ours, and for those that judge ``tupper serve`` by clients of E2B."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_URL = re.compile(r"http://\S+")


@dataclass
class Server:
    """A server on TCP: its URL, and a key."""

    url: str
    key: str


@pytest.fixture(scope="session")
def e2b_server():
    """A ``tupper serve`` for the whole run, named in the environment as E2B's clients want it."""
    command = [sys.executable, "-m", "tupper", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            url = _listening(server)
            key = _key()
            names = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL")
            given = {**dict.fromkeys(names, url), "E2B_API_KEY": key}
            given |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
            with pytest.MonkeyPatch.context() as patch:
                for name, value in given.items():
                    patch.setenv(name, value)
                yield Server(url, key)
        finally:
            server.terminate()
            server.communicate(timeout=60)


def _listening(server):
    said = []
    for line in server.stderr:
        said.append(line)
        if line.lstrip().startswith("export E2B_API_KEY"):  # the last that it says
            return _URL.search("".join(said))[0]
    raise RuntimeError(f"tupper serve ended: {''.join(said)}")


def _key():
    command = [sys.executable, "-m", "tupper", "key", "create"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture(scope="session")
def e2b_environment(e2b_server):
    """The environment of a program that is a client of E2B."""
    del e2b_server
    return dict(os.environ)


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
