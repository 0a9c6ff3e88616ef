"""The background process as a process: started, found, killed with -9, started again."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tupper.core.liveness import is_alive, start_ticks

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = [{src!r}, {tests!r}]
from integration.engine.world import World, InProcesses
from tupper.core.settings import Settings
from tupper.server.__main__ import log_to
from tupper.server.daemon import Options, run
import os
world = World(Path(sys.argv[1]), InProcesses())
log_to(world.paths.data)
settings = Settings(min_free_disk_mib=1, leave_after_s=float(sys.argv[2]))
ready = lambda urls: print("ready", urls[0], flush=True)
sys.exit(run(world.paths, settings, Options(background=True, ready=ready, find_parts=world.find_parts)))
"""


class Daemon:
    def __init__(self, home: Path, leave_after_s: float = 600) -> None:
        script = home / "daemon.py"
        if not script.exists():  # never under the hands of one that is just reading it
            script.write_text(
                textwrap.dedent(PROGRAM.format(src=str(ROOT / "src"), tests=str(ROOT / "tests")))
            )
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(home), str(leave_after_s)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_ready(self) -> None:
        line = self.process.stdout.readline()
        assert line.startswith("ready unix:"), line + self.process.stderr.read()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    for pid_file in tmp_path.glob("machines"):
        pid_file.unlink()
    # Machines outlive their engine by design: end those that a failed test left.
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"agent_double.py" in line and os.fsencode(tmp_path) in line:
                os.kill(int(entry.name), signal.SIGKILL)


@contextmanager
def daemon(home, **options):
    started = Daemon(home, **options)
    try:
        started.wait_ready()
        yield started
    finally:
        started.end()


def client(home):
    transport = httpx2.HTTPTransport(uds=str(home / "r" / "tupper.sock"))
    return httpx2.Client(transport=transport, base_url="http://tupper", timeout=20)


def until(condition, what):
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_kill_9_and_start_again_adopts(home):
    with daemon(home) as first, client(home) as http:
        answer = http.post("/v2/sandboxes", json={"tupper": {"name": "kept"}})
        assert answer.status_code == 201, answer.text
        made = answer.json()
        address = http.post("/tupper/v1/sandboxes/kept/ports", json={"port": 80}).json()["address"]
        gone = http.post("/v2/sandboxes", json={"tupper": {"name": "gone"}}).json()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    pids = {r["id"]: r["machine"]["pid"] for r in records(home)}
    os.kill(pids[gone["sandboxID"]], signal.SIGKILL)
    # The agent answers while no background process is there.
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(made["tupper"]["agent"]["path"])
        agent.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert agent.recv(100).startswith(b"HTTP/1.1 204")
    with daemon(home), client(home) as http:
        again = http.get("/sandboxes/kept").json()
        assert again["sandboxID"] == made["sandboxID"]
        assert again["envdAccessToken"] == made["envdAccessToken"]

        def end_reason():
            ended = http.get("/sandboxes/gone", params={"ended": "true"}).json()
            return ended.get("tupper", {}).get("endReason")

        until(end_reason, "reaped")
        assert end_reason() == "machine_died"
        host, port = address.split(":")

        def forwarded():
            try:
                with socket.create_connection((host, int(port)), 1) as connection:
                    return connection.recv(10) == b"80"
            except OSError:
                return False

        until(forwarded, "port")
        assert http.delete("/sandboxes/kept").status_code == 204
        pid = pids[made["sandboxID"]]
        assert start_ticks(pid) is None
        assert not list((home / "data" / "sandboxes").iterdir())
        assert not list((home / "r" / "s").iterdir())


def records(home):
    import sqlite3

    db = sqlite3.connect(home / "data" / "tupper.db")
    try:
        return [
            json.loads(row[0])
            for row in db.execute("SELECT record FROM sandboxes WHERE state != 'ended'")
        ]
    finally:
        db.close()


def test_kill_9_during_a_create_leaves_nothing_after_the_next_start(home):
    with daemon(home) as first, client(home) as http:
        http.post("/v2/sandboxes", json={"tupper": {"name": "a"}})
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    import sqlite3

    db = sqlite3.connect(home / "data" / "tupper.db")
    record = records(home)[0]
    pid, ticks = record["machine"]["pid"], record["machine"]["start_ticks"]
    db.execute(
        "UPDATE sandboxes SET state = 'starting', record = ?",
        (json.dumps(record | {"state": "starting"}),),
    )
    db.commit()
    db.close()
    with daemon(home), client(home) as http:
        assert http.get("/v2/sandboxes").json() == []
        assert not is_alive(pid, ticks)
        assert not list((home / "data" / "sandboxes").iterdir())


def test_two_starters_at_once_become_one_process(home):
    starters = [Daemon(home) for _ in range(3)]
    try:
        until(lambda: sum(s.process.poll() is not None for s in starters) == 2, "two leave")
        losers = [s for s in starters if s.process.poll() is not None]
        assert [s.process.returncode for s in losers] == [1, 1], [
            s.process.communicate() for s in losers
        ]
        for loser in losers:
            assert "another background process" in loser.process.stderr.read()
        with client(home) as http:
            (winner,) = (s for s in starters if s.process.poll() is None)
            assert http.get("/tupper/v1/info").json()["pid"] == winner.process.pid
    finally:
        for starter in starters:
            starter.end()


def test_leaves_when_idle_and_stays_while_a_sandbox_runs(home):
    with daemon(home, leave_after_s=1.5) as process, client(home) as http:
        http.post("/v2/sandboxes", json={"tupper": {"name": "a"}})
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(3)
        http.delete("/sandboxes/a")
        assert process.process.wait(10) == 0
        assert not (home / "r" / "address").exists()
        assert not (home / "r" / "tupper.sock").exists()


def test_sigterm_leaves_in_order_and_ends_no_sandbox(home):
    with daemon(home) as process, client(home) as http:
        made = http.post("/v2/sandboxes", json={}).raise_for_status().json()
        process.process.terminate()
        assert process.process.wait(10) == 0
    with daemon(home), client(home) as http:
        assert http.get(f"/sandboxes/{made['sandboxID']}").json()["tupper"]["health"] == "ok"
        http.delete(f"/sandboxes/{made['sandboxID']}")


def test_restart_replaces_the_program_and_adopts(home):
    with daemon(home) as process, client(home) as http:
        made = http.post("/v2/sandboxes", json={}).raise_for_status().json()
        assert http.post("/tupper/v1/shutdown", json={}).status_code == 409
        assert http.post("/tupper/v1/shutdown", json={"restart": True}).status_code == 202
        process.wait_ready()
        assert http.get("/tupper/v1/info").json()["pid"] == process.process.pid
        assert http.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204


def test_costs_nothing_when_idle(home):
    with daemon(home) as process, client(home) as http:
        http.post("/v2/sandboxes", json={"tupper": {"name": "a"}})
        pid = process.process.pid
        status = Path(f"/proc/{pid}/smaps_rollup").read_text()
        pss_mib = int(status.split("Pss:")[1].split()[0]) / 1024
        assert pss_mib < 90
        before = switches(pid)
        time.sleep(1.0)
        assert switches(pid) - before <= 3
        http.delete("/sandboxes/a")


def switches(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
