"""What each way of talking to a real ``tupper serve`` gave."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.e2b.environments import JAVASCRIPT, NEW, OLD, CannotMake, javascript_with, python_with
from e2e.serving import served

__all__ = ["served"]

HERE = Path(__file__).parent
_LIMIT_S = 500
_AT_ONCE = 2
_NO_PROXY = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


@pytest.fixture(scope="module")
def runs(request, served):
    """Way → a future of its outcomes: of all ways that tests ask for, two at a time."""
    tests = [item for item in request.session.items if item.path.parent == HERE]
    asked = {}
    for test in tests:
        asked.setdefault(test.callspec.params["way"], set()).add(test.callspec.params["row"])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {way: pool.submit(_run, served, way, rows) for way, rows in asked.items()}
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def outcome(runs):
    """(way, row) → what came of it."""

    def find(way, row):
        found, ending = runs[way].result()
        if isinstance(found, str):
            pytest.skip(found)
        assert row in found, f"the driver never got to {row}: {ending}"
        return found[row]

    return find


def _run(served, way, rows):
    try:
        command, environment = _command(served, way, sorted(rows))
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


def _command(served, way, rows):
    sdk, _, half = way.partition("-")
    driver = str(HERE / "driver.py")
    if sdk == "native":
        return [sys.executable, driver, "tupper", half, *rows], dict(os.environ)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUPPER_")
    }
    environment |= {
        "E2B_API_KEY": served.key,
        "E2B_API_URL": served.url,
        "E2B_SANDBOX_URL": served.url,
        "E2B_VOLUME_API_URL": served.url,
    }
    if sdk == "javascript":
        node, modules = javascript_with(JAVASCRIPT)
        return [node, str(HERE / "smoke.mjs")], {**environment, "ROWS_MODULES": modules}
    python = python_with({"new": NEW, "old": OLD}[sdk])
    return [python, driver, "e2b", half, *rows], environment
