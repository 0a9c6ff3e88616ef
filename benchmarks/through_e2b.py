"""The unmodified ``e2b`` package against ``tupper serve``, next to our own SDK's local path.

One sandbox, one server, both measured in turns: commands, 100 MB up and down, and 200 commands
whose output streams at once. The package comes from an environment of its own, the newest that
``tests/e2e/e2b`` has made; ``E2B_PYTHON`` names another.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import spread, timed
from tupper import Sandbox
from tupper.core.paths import find_paths

STREAMS = 200
_DRIVER = """
import asyncio, json, os, statistics, sys, time
from e2b import AsyncSandbox, Sandbox

repeat, streams = int(sys.argv[1]), int(sys.argv[2])
sbx = Sandbox.create(timeout=1800)
sandbox_id = sbx.sandbox_id
print(json.dumps(sandbox_id), flush=True)

def timed(function):
    started = time.perf_counter(); function(); return time.perf_counter() - started

def commands():
    return [timed(lambda: sbx.commands.run("true")) for _ in range(repeat)]

def files():
    data = os.urandom(1 << 20) * 96
    ups, downs = [], []
    for _ in range(3):
        ups.append(timed(lambda: sbx.files.write("/tmp/blob", data)))
        downs.append(timed(lambda: sbx.files.read("/tmp/blob", format="bytes")))
    size = len(data) / 1e6
    return {"up_mb_s": round(size / min(ups), 1), "down_mb_s": round(size / min(downs), 1)}

async def many():
    sandbox = await AsyncSandbox.connect(sandbox_id, timeout=1800)
    line = "for i in 1 2 3 4 5; do echo line $i; sleep 1; done"
    seen = [0] * streams
    async def one(number):
        def count(text): seen[number] += text.count("line")
        await sandbox.commands.run(line, on_stdout=count, timeout=300)
    started = time.perf_counter()
    done = await asyncio.gather(*(one(n) for n in range(streams)), return_exceptions=True)
    errors = [repr(each)[:300] for each in done if each is not None]
    return {"streams": streams, "errors": len(errors), "first_errors": errors[:3],
            "complete": sum(n == 5 for n in seen), "s": round(time.perf_counter() - started, 1)}

for line in sys.stdin:
    name = line.strip()
    found = {"commands": commands, "files": files, "many": lambda: asyncio.run(many())}[name]()
    print(json.dumps(found), flush=True)
sbx.kill()
"""


def measure(options: argparse.Namespace) -> dict[str, object]:
    python = _python()
    if python is None:
        return {"skipped": "no environment with e2b; tests/e2e/e2b makes one"}
    with _serving() as environment:
        repeat = options.repeat * 3
        argv = [python, "-c", _DRIVER, str(repeat), str(STREAMS)]
        with subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as driver:
            sbx = Sandbox.connect(_read(driver))
            theirs: list[float] = []
            ours: list[float] = []
            for _ in range(3):
                ours += [timed(lambda: sbx.commands.run("true")) for _ in range(repeat)]
                theirs += _ask(driver, "commands")
            files, local = _ask(driver, "files"), _files(sbx)
            many = _ask(driver, "many")
            driver.stdin.close()
    ratio = statistics.median(theirs) / statistics.median(ours)
    return {
        "commands_run_through_e2b": spread(theirs),
        "commands_run_local": spread(ours),
        "ratio": round(ratio, 2),
        "files_through_e2b": files,
        "files_local": local,
        "concurrent": many,
    }


def _files(sbx: Sandbox) -> dict[str, float]:
    data = os.urandom(1 << 20) * 96
    ups, downs = [], []
    for _ in range(3):
        ups.append(timed(lambda: sbx.files.write("/tmp/blob", data)))
        downs.append(timed(lambda: sbx.files.read("/tmp/blob", format="bytes")))
    size = len(data) / 1e6
    return {"up_mb_s": round(size / min(ups), 1), "down_mb_s": round(size / min(downs), 1)}


def _ask(driver: subprocess.Popen[str], name: str):
    driver.stdin.write(f"{name}\n")
    driver.stdin.flush()
    return _read(driver)


def _read(driver: subprocess.Popen[str]):
    return json.loads(driver.stdout.readline())


def _python() -> str | None:
    if named := os.environ.get("E2B_PYTHON"):
        return named
    places = sorted((find_paths().cache / "test-envs").glob("e2b-2.*-py*/bin/python"))
    return str(places[-1]) if places else None


@contextlib.contextmanager
def _serving() -> Iterator[dict[str, str]]:
    """A server in the foreground; the environment for clients of it."""
    tupper = [sys.executable, "-m", "tupper"]
    with (
        tempfile.TemporaryDirectory() as place,
        Path(place, "said").open("w") as said,
        subprocess.Popen([*tupper, "serve", "--listen", "127.0.0.1:0"], stderr=said) as server,
    ):
        try:
            end = time.monotonic() + 60
            while not (found := re.search(r"http://\S+", Path(said.name).read_text())):
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no server: {Path(said.name).read_text()}")
                time.sleep(0.05)
            made = subprocess.run(
                [*tupper, "key", "create"], check=True, capture_output=True, text=True, timeout=60
            )
            yield {
                "PATH": os.environ["PATH"],
                "E2B_API_KEY": made.stdout.strip(),
                "E2B_API_URL": found[0],
                "E2B_SANDBOX_URL": found[0],
                "NO_PROXY": "127.0.0.1,localhost",
            }
        finally:
            server.terminate()
