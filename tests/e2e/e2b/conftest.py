"""A real ``tupper serve`` with a key, and what each way of talking to it gave."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.e2b.environments import JAVASCRIPT, NEW, OLD, CannotMake, javascript_with, python_with
from e2e.e2b.places import places
from tupper.core.paths import find_paths

HERE = Path(__file__).parent
_LIMIT_S = 500
_NO_PROXY = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


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
    _call("POST", "/shutdown", {"force": True})
    end = time.monotonic() + 20
    while address.exists():
        assert time.monotonic() < end, "the background process did not leave"
        time.sleep(0.05)


@pytest.fixture
def outcome(served):
    """(way, row) → what came of it; a way is run when its first row is asked for."""

    def find(way, row):
        if way not in served.outcomes:
            served.outcomes[way] = _run(served, way)
        found, ending = served.outcomes[way]
        if isinstance(found, str):
            pytest.skip(found)
        assert row in found, f"the driver never got to {row}: {ending}"
        return found[row]

    return find


def _run(served, way):
    try:
        command, environment = _command(served, way)
    except CannotMake as reason:
        return f"no published SDK: {reason}", ""
    done = subprocess.run(
        command,
        env={**environment, **_NO_PROXY, "ROWS_PLACES": served.places},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if record := os.environ.get("ROWS_RECORD"):
        Path(record, f"{way}.jsonl").write_text(done.stdout)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["row"]: line for line in lines if "row" in line}, done.stderr[-2000:]


def _command(served, way):
    sdk, _, half = way.partition("-")
    driver = str(HERE / "driver.py")
    if sdk == "native":
        return [sys.executable, driver, "tupper", half], dict(os.environ)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUPPER_")
    }
    environment |= {
        "E2B_API_KEY": served.key,
        "E2B_API_URL": served.url,
        "E2B_SANDBOX_URL": served.url,
    }
    if sdk == "javascript":
        node, modules = javascript_with(JAVASCRIPT)
        return [node, str(HERE / "smoke.mjs")], {**environment, "ROWS_MODULES": modules}
    python = python_with({"new": NEW, "old": OLD}[sdk])
    return [python, driver, "e2b", half], environment
