"""Faults of the host: kill -9 at any moment, full disks, damaged stores, a second engine."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration.engine.host import ROOT
from integration.engine.test_real import create, run, until
from traces import find_engine_id

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

SMALL = {"memoryMiB": 128, "diskMiB": 256}
ROUNDS = int(os.environ.get("TUPPER_KILL_ROUNDS", "6"))


def elements(host):
    """Links that the packet filter of this engine knows."""
    table = f"tupper_{find_engine_id(host.paths.data / 'tupper.db')}"
    listed = subprocess.run(
        ["nft", "list", "set", "inet", table, "sources"],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.count('"tp')


def others(host, kept):
    """What is on the host of this engine's, but not of the kept sandboxes."""
    engine = find_engine_id(host.paths.data / "tupper.db")
    places = [host.paths.data / "sandboxes", host.paths.data / "network", host.paths.runtime / "s"]
    found = [p for place in places for p in place.iterdir()]
    found += [p for p in Path("/run/netns").iterdir() if engine in p.name]
    found += Path("/sys/fs/cgroup").glob(f"*/tupper-{engine}-*")
    left = [str(p) for p in found if not any(name in p.name for name in kept)]
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    lines += [read(p) for p in Path("/sys/block").glob("loop*/loop/backing_file")]
    lines += [read(p) for p in Path("/proc").glob("[0-9]*/cmdline")]
    where = f"{host.paths.data}/sandboxes/"
    left += [line for line in lines if where in line and not any(name in line for name in kept)]
    links = [p for p in Path("/sys/class/net").iterdir() if engine in p.name]
    if len(links) != len(kept) or elements(host) != len(kept):
        left.append(f"{len(links)} links, {elements(host)} elements, {len(kept)} sandboxes")
    return left


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def disturb(host, method, path, body=b""):
    """A call whose answer may never come."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(host.paths.socket))
        head = f"{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while connection.recv(4096):
            pass


def test_kill_9_at_any_moment_of_create_and_kill(new_host):
    host, chance = new_host("kill9"), random.Random(5)
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()

    with host.client() as http:
        kept = create(http, name="kept", **SMALL)
    run(kept, "echo before > /tmp/f; (while :; do sleep 1; done) >/dev/null 2>&1 &")
    body = json.dumps({"templateID": "minimal", "tupper": SMALL}).encode()
    for number in range(ROUNDS):
        with host.client() as http:
            doomed = create(http, name=f"doomed{number}", **SMALL)["sandboxID"]
        calls = [
            threading.Thread(target=disturb, args=(host, "POST", "/v2/sandboxes", body)),
            threading.Thread(target=disturb, args=(host, "POST", "/v2/sandboxes", body)),
            threading.Thread(target=disturb, args=(host, "DELETE", f"/sandboxes/{doomed}")),
        ]
        for call in calls:
            call.start()
        calls[chance.randrange(3)].join(chance.random())
        host.kill_9()
        for call in calls:
            call.join(60)
        host.start()
        with host.client() as http:
            assert http.get("/sandboxes/kept").json()["tupper"]["health"] == "ok"
            for sandbox in http.get("/v2/sandboxes").json():
                if sandbox["sandboxID"] != kept["sandboxID"]:
                    assert http.delete(f"/sandboxes/{sandbox['sandboxID']}").status_code == 204
        assert "before" in run(kept, "cat /tmp/f; ps -o args")
        until(lambda: not others(host, [kept["sandboxID"]]), others(host, [kept["sandboxID"]]))
    with host.client() as http:
        assert http.delete("/sandboxes/kept").status_code == 204
    assert others(host, []) == []
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding


def test_two_engines_never_touch_each_others(new_host):
    one, two = new_host("one"), new_host("two")
    with one.client() as http, two.client() as other:
        mine, theirs = create(http, name="x", **SMALL), create(other, name="x", **SMALL)
    one.kill_9()
    one.start()
    two.kill_9()
    two.start()
    assert (run(mine, "echo ok"), run(theirs, "echo ok")) == ("ok\n", "ok\n")
    with one.client() as http:
        assert http.delete("/sandboxes/x").status_code == 204
    assert run(theirs, "echo ok") == "ok\n"
    assert others(two, [theirs["sandboxID"]]) == []


@pytest.mark.parametrize("which", ["kernel", "gofer"])
def test_half_of_a_machine_dies(new_host, which):
    host = new_host("half")
    with host.client() as http:
        made = create(http, name="x", **SMALL)
        machine = host.machine(made["sandboxID"])
        os.kill(machine["pid"] if which == "kernel" else machine["data"]["gofer_pid"], 9)

        def end_reason():
            ended = http.get(f"/sandboxes/{made['sandboxID']}", params={"ended": "true"}).json()
            return ended.get("tupper", {}).get("endReason")

        until(end_reason, "the end")
        assert end_reason() == "machine_died"
        assert not others(host, [])


def test_start_beside_a_stopped_machine(new_host):
    host = new_host("stopped")
    with host.client() as http:
        made = create(http, name="x", **SMALL)
    machine = host.machine(made["sandboxID"])
    for pid in (machine["pid"], machine["data"]["gofer_pid"]):
        os.kill(pid, signal.SIGSTOP)
    host.kill_9()
    host.start()
    with host.client() as http:
        assert http.get("/sandboxes/x").json()["tupper"]["health"] == "unreachable"
        assert http.delete("/sandboxes/x").status_code == 204
    assert others(host, []) == []


def test_full_disk_of_the_data_directory(small_disk, new_host):
    (small_disk / "config.toml").write_text("[settings]\nmin_free_disk_mib = 0\n")
    host = new_host("full")
    with host.client() as http:
        kept = create(http, name="kept", **SMALL)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    body = {"templateID": "minimal", "tupper": SMALL}
    with host.client() as http:
        answer = http.post("/v2/sandboxes", json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (507, "out_of_disk")
    host.kill_9()
    host.start()  # also without any room
    assert run(kept, "echo ok") == "ok\n"
    with host.client() as http:
        assert http.delete("/sandboxes/kept").status_code == 204
        assert others(host, []) == []
        ballast.unlink()
        assert http.post("/v2/sandboxes", json=body).status_code == 201
        end = time.monotonic() + 30
        while http.get("/sandboxes/kept", params={"ended": "true"}).status_code == 404:
            assert time.monotonic() < end, "the end was never written down"


@pytest.mark.parametrize("damage", ["no database", "torn"])
def test_damaged_store_is_said_at_once(new_host, damage):
    host = new_host("damaged")
    host.process.terminate()
    host.process.wait(30)
    store = host.paths.data / "tupper.db"
    good = store.read_bytes()
    store.write_bytes(b"x" * 9000 if damage == "no database" else good[:100] + bytes(len(good)))
    for name in ("tupper.db-wal", "tupper.db-shm"):
        (host.paths.data / name).unlink(missing_ok=True)
    script = "from tupper import Sandbox\nSandbox.create('minimal')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=host.env | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    store.write_bytes(good)
    last = done.stderr.strip().splitlines()[-1]
    assert "UnavailableException" in last
    assert "did not start: cannot use the store" in last
    assert "backup" in last
