"""The engine with real gVisor machines, real networks and the real agent."""

import asyncio
import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from tupper.core.liveness import is_alive, start_ticks

ROOT = Path(__file__).parents[3]


pytestmark = [pytest.mark.root, pytest.mark.gvisor]


def create(http, **tupper):
    answer = http.post(
        "/v2/sandboxes", json={"templateID": "minimal", "timeout": 300, "tupper": tupper}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


def agent(made):
    transport = httpx2.HTTPTransport(uds=made["tupper"]["agent"]["path"])
    headers = {"X-Access-Token": made["envdAccessToken"]}
    return httpx2.Client(transport=transport, base_url="http://a", headers=headers, timeout=60)


def start_body(script):
    message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", script]}}).encode()
    return struct.pack(">BI", 0, len(message)) + message


STREAM = {"Content-Type": "application/connect+json"}


def run(made, script):
    with agent(made) as client:
        raw = client.post(
            "/process.Process/Start", headers=STREAM, content=start_body(script)
        ).content
    out = b""
    while raw:
        (size,) = struct.unpack(">I", raw[1:5])
        event = json.loads(raw[5 : 5 + size]).get("event", {})
        for stream in ("stdout", "stderr"):
            out += base64.b64decode(event.get("data", {}).get(stream, ""))
        raw = raw[5 + size :]
    return out.decode()


def until(condition, what, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_whole_life(host, http):
    made = create(http, name="life", workdir="/tmp")
    assert made["tupper"]["isolation"] == "user-kernel"
    assert run(made, "id -un; pwd").split() == ["user", "/tmp"]
    assert "life" in run(made, "cat /etc/hosts /etc/hostname")
    (sample,) = http.get("/sandboxes/life/metrics").json()
    assert 0 < sample["memUsed"] < sample["memTotal"]
    assert "agent" in http.get("/tupper/v1/sandboxes/life/log").text
    assert http.delete("/sandboxes/life").status_code == 204
    assert host.leftovers() == []


def test_kill_9_of_the_background_process_leaves_the_sandbox_as_it_was(host, http):
    made = create(http, name="kept")
    run(
        made,
        "echo before > /home/user/f; (while :; do sleep 1; done) >/dev/null 2>&1 & (cd /home/user; busybox nc -ll -p 8000 -e echo hi) >/dev/null 2>&1 &",
    )
    address = http.post("/tupper/v1/sandboxes/kept/ports", json={"port": 8000}).json()["address"]
    host.kill_9()
    assert run(made, "cat /home/user/f").strip() == "before"
    host.start()
    with host.client() as again:
        assert again.get("/sandboxes/kept").json()["tupper"]["health"] == "ok"
        until(lambda: reach(address) == b"hi\n", "port")
        assert "sleep" in run(made, "ps -o args")
        assert again.delete("/sandboxes/kept").status_code == 204
    assert host.leftovers() == []


def reach(address):
    import socket

    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.settimeout(5)
            return connection.recv(10)
    except OSError:
        return b""


def end_reason(http, sandbox_id):
    """Why it ended; None until all of it is gone. It is not found as soon as it begins to end."""
    ended = http.get(f"/sandboxes/{sandbox_id}", params={"ended": "true"}).json()
    return ended.get("tupper", {}).get("endReason")


def test_TB089_machine_that_died_while_nobody_watched_is_reaped(host, http):
    made = create(http, name="dead")
    machine = host.machine(made["sandboxID"])
    host.kill_9()
    os.kill(machine["pid"], signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"])
    host.start()
    with host.client() as again:
        until(lambda: end_reason(again, made["sandboxID"]), "reaped")
        assert end_reason(again, made["sandboxID"]) == "machine_died"
    assert host.leftovers() == []
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_TB089_record_with_the_pid_of_a_stranger_does_not_touch_it(host, http):
    import sqlite3

    made = create(http, name="reused")
    machine = host.machine(made["sandboxID"])
    host.kill_9()
    os.kill(machine["pid"], signal.SIGKILL)
    until(lambda: not is_alive(machine["pid"], machine["start_ticks"]), "end")
    stranger = subprocess.Popen(["sleep", "60"])
    db = sqlite3.connect(host.paths.data / "tupper.db")
    (text,) = db.execute(
        "SELECT record FROM sandboxes WHERE id = ?", (made["sandboxID"],)
    ).fetchone()
    record = json.loads(text)
    record["machine"]["pid"] = stranger.pid
    db.execute(
        "UPDATE sandboxes SET record = ? WHERE id = ?", (json.dumps(record), made["sandboxID"])
    )
    db.commit()
    db.close()
    host.start()
    with host.client() as again:
        until(lambda: end_reason(again, made["sandboxID"]), "reaped")
    assert stranger.poll() is None
    assert start_ticks(stranger.pid)
    stranger.kill()
    stranger.wait()
    assert host.leftovers() == []


def test_kill_9_between_the_start_of_a_machine_and_its_record(host, http):
    """The worst moment: a machine runs and the store knows only that one was to be made."""
    import sqlite3

    made = create(http, name="half")
    machine = host.machine(made["sandboxID"])
    host.kill_9()
    db = sqlite3.connect(host.paths.data / "tupper.db")
    (text,) = db.execute(
        "SELECT record FROM sandboxes WHERE id = ?", (made["sandboxID"],)
    ).fetchone()
    record = json.loads(text) | {
        "state": "starting",
        "machine": None,
        "agent": None,
        "attachment": None,
    }
    db.execute(
        "UPDATE sandboxes SET state = 'starting', record = ? WHERE id = ?",
        (json.dumps(record), made["sandboxID"]),
    )
    db.commit()
    db.close()
    host.start()
    with host.client() as again:
        ended = again.get("/sandboxes/half", params={"ended": "true"}).json()
        assert ended["tupper"]["endReason"] == "start_failed"
    until(lambda: not is_alive(machine["pid"], machine["start_ticks"]), "machine gone")
    assert host.leftovers() == []


def test_TB037_frozen_machine_is_unreachable_and_comes_back(host, http):
    made = create(http, name="frozen")
    pid = host.machine(made["sandboxID"])["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = http.get("/sandboxes/frozen").json()
        assert (answer["state"], answer["tupper"]["health"]) == ("running", "unreachable")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert http.get("/sandboxes/frozen").json()["tupper"]["health"] == "ok"
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert http.delete("/sandboxes/frozen").status_code == 204
    assert time.monotonic() - began < 10
    assert host.leftovers() == []


def test_TB087_kill_ends_streams_quickly_although_the_guest_ignores_sigterm(host, http):
    made = create(http, name="stubborn")
    with agent(made) as client:
        script = "trap '' TERM; echo ready; sleep 300"
        with client.stream(
            "POST", "/process.Process/Start", headers=STREAM, content=start_body(script)
        ) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            began = time.monotonic()
            assert http.delete("/sandboxes/stubborn").status_code == 204
            assert time.monotonic() - began < 5
            with pytest.raises(httpx2.HTTPError):
                list(chunks)
    assert host.leftovers() == []


def test_TB043_many_at_once_have_their_own_everything(host, http):
    async def many():
        transport = httpx2.AsyncHTTPTransport(uds=str(host.paths.socket))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://t", timeout=120
        ) as client:
            body = {"templateID": "minimal", "timeout": 120, "tupper": {}}
            made = await asyncio.gather(
                *(client.post("/v2/sandboxes", json=body) for _ in range(12))
            )
            named = await asyncio.gather(
                *(
                    client.post("/v2/sandboxes", json=body | {"tupper": {"name": "one"}})
                    for _ in range(8)
                )
            )
            return [a.json() for a in made], [a.status_code for a in named]

    made, named = asyncio.run(many())
    assert sorted(named) == [201] + [409] * 7
    assert len({m["sandboxID"] for m in made}) == 12
    addresses = {run(m, "ip -4 -o addr show | grep -v ' lo '; echo ok") for m in made}
    assert len(addresses) == 12
    assert http.get("/sandboxes/one").json()["tupper"]["health"] == "ok"
    for sandbox in http.get("/v2/sandboxes").json():
        assert http.delete(f"/sandboxes/{sandbox['sandboxID']}").status_code == 204
    assert host.leftovers() == []


def test_mount_is_seen_and_read_only_is_read_only(host, http, tmp_path):
    (tmp_path / "f").write_text("from the host")
    (tmp_path / "f").chmod(0o644)
    tmp_path.chmod(0o777)
    mounts = [
        {"hostPath": str(tmp_path), "guestPath": "/mnt/rw"},
        {"hostPath": str(tmp_path), "guestPath": "/mnt/ro", "readOnly": True},
    ]
    made = create(http, name="mounts", mounts=mounts)
    assert run(made, "cat /mnt/ro/f") == "from the host"
    assert "Read-only" in run(made, "echo x > /mnt/ro/g")
    run(made, "echo back > /mnt/rw/g")
    assert (tmp_path / "g").read_text() == "back\n"
    http.delete("/sandboxes/mounts")
    assert (tmp_path / "f").exists()


def test_TB113_emptied_cache_is_made_again_and_prune_spares_what_is_used(host, http):
    made = create(http, name="uses")
    shutil.rmtree(host.paths.cache / "disks", ignore_errors=True)
    assert create(http, name="again")["sandboxID"]
    assert http.post("/tupper/v1/images/prune").status_code == 200
    assert run(made, "echo ok").strip() == "ok"
    digest = next(i for i in http.get("/tupper/v1/images").json() if i["inUse"])["digest"]
    assert http.delete(f"/tupper/v1/images/{digest}").status_code == 409
    assert create(http, name="third")["sandboxID"]
    for name in ("uses", "again", "third"):
        http.delete(f"/sandboxes/{name}")
    assert host.leftovers() == []
