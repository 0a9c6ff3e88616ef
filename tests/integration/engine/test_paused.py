"""Pausing, resuming, snapshots and forks with real gVisor machines."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from integration.engine.host import Host
from integration.engine.test_real import create, run, until
from prepared import KEPT, link_home
from tupper.core.liveness import is_alive

pytestmark = [pytest.mark.root, pytest.mark.gvisor, pytest.mark.timeout(300)]

# A process with memory, an open file, a place in memory and a listener.
TICKER = """
exec 3>>/home/user/ticks; n=0
while :; do n=$((n+1)); echo $n >&3; echo $n >/dev/shm/n; sleep 0.1; done
"""


def start(made, script):
    """Start a script in the background; returns its pid inside."""
    out = run(made, f"( {script} ) >/dev/null 2>&1 </dev/null & echo $!")
    return int(out)


def ticks(made):
    return [int(line) for line in run(made, "cat /home/user/ticks").split()]


def on_the_host(host, sandbox_id):
    """Everything that a running sandbox has on the host, but for its own directory."""
    found = [p for p in Path("/proc").glob("[0-9]*/cmdline") if sandbox_id in read(p)]
    found += [p for p in Path("/run/netns").glob("*") if sandbox_id in p.name]
    found += Path("/sys/fs/cgroup").glob(f"*/*{sandbox_id}")
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    found += [p for p in backing if sandbox_id in read(p)]
    found += [line for line in read(Path("/proc/self/mounts")).splitlines() if sandbox_id in line]
    return [*found, *(host.paths.runtime / "s").glob(f"{sandbox_id}*")]


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def pause(http, made, **body):
    answer = http.post(f"/sandboxes/{made['sandboxID']}/pause", json=body)
    assert answer.status_code == 204, answer.text


def resume(http, made, timeout=300):
    path = f"/v2/sandboxes/{made['sandboxID']}/connect"
    answer = http.post(path, json={"timeout": timeout})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_paused_sandbox_is_only_a_directory_and_goes_on_where_it_was(host, http):
    made = create(http, name="rest")
    pid = start(made, TICKER)
    until(lambda: len(ticks(made)) > 2, "ticks")
    boot_id = run(made, "cat /proc/sys/kernel/random/boot_id")
    pause(http, made)

    until(lambda: on_the_host(host, made["sandboxID"]) == [], "nothing of it is left")
    shown = http.get("/sandboxes/rest").json()
    assert shown["state"] == "paused"
    assert shown["pauseMode"] == "full"
    assert http.post("/sandboxes/rest/pause").status_code == 409
    assert http.post("/sandboxes/rest/timeout", json={"timeout": 9}).status_code == 404
    assert http.post("/sandboxes/rest/fork").status_code == 409
    assert http.get("/v2/sandboxes", params={"state": "running"}).json() == []
    assert http.get("/tupper/v1/info").json()["sandboxes"] == 0
    assert True in {item["inUse"] for item in http.get("/tupper/v1/images").json()}

    host.kill_9()
    host.start()
    with host.client() as again:
        assert again.get("/sandboxes/rest").json()["state"] == "paused"
        same = resume(again, made)
        assert same["envdAccessToken"] == made["envdAccessToken"]
        before = ticks(same)
        until(lambda: len(ticks(same)) > len(before), "the process goes on")
        now = ticks(same)
        assert now == list(range(1, len(now) + 1))
        assert f" {pid} " in run(same, "ps -o pid,args | sed 's/^ */ /'")
        assert run(same, "cat /dev/shm/n").strip().isdigit()
        assert run(same, "cat /proc/sys/kernel/random/boot_id") == boot_id
        directory = host.paths.data / "sandboxes" / made["sandboxID"]
        until(lambda: not (directory / "saved").exists(), "what was saved is gone")
        pause(again, made)
        assert again.delete("/sandboxes/rest").status_code == 204
    assert host.leftovers() == []


def test_forks_are_others_and_their_source_goes_on(host, http):
    made = create(http, name="source")
    start(made, TICKER)
    run(made, "echo shared > /home/user/f; head -c 16 /proc/sys/kernel/random/uuid > /dev/null")
    answer = http.post("/sandboxes/source/fork", json={"count": 2, "timeout": 200})
    assert answer.status_code == 201, answer.text
    forks = [entry["sandbox"] for entry in answer.json()]
    everyone = [made, *forks]
    for what in ("sandboxID", "envdAccessToken"):
        assert len({one[what] for one in everyone}) == 3
    scripts = ("hostname", "cat /etc/machine-id", "cat /etc/resolv.conf", "cat /etc/hosts")
    for script in scripts:
        said = [run(one, script) for one in everyone]
        assert len(set(said)) == 3, (script, said)
    assert run(forks[0], "hostname").strip() == forks[0]["sandboxID"]
    for index, one in enumerate(everyone):
        assert run(one, f"cat /home/user/f; echo {index} > /home/user/f").strip() == "shared"
    for index, one in enumerate(everyone):
        assert run(one, "cat /home/user/f").strip() == str(index)
        seen = ticks(one)
        until(lambda one=one, seen=seen: len(ticks(one)) > len(seen), "its process goes on")
        now = ticks(one)
        assert now == list(range(1, len(now) + 1))
        assert abs(float(run(one, "date +%s")) - time.time()) < 30
    assert not list((host.paths.data / "snapshots").glob("*"))
    for one in everyone:
        assert http.delete(f"/sandboxes/{one['sandboxID']}").status_code == 204
    assert host.leftovers() == []


def test_a_snapshot_outlives_its_sandbox_and_starts_others(host, http):
    made = create(http)
    pid = start(made, TICKER)
    kept = http.post(f"/sandboxes/{made['sandboxID']}/snapshots", json={"name": "warm:v1"})
    assert kept.status_code == 201, kept.text
    snapshot = kept.json()["snapshotID"]
    assert http.get("/snapshots", params={"name": "warm"}).json() == [kept.json()]
    assert http.get("/snapshots", params={"name": "warm:v2"}).json() == []
    http.delete(f"/sandboxes/{made['sandboxID']}")
    assert True in {item["inUse"] for item in http.get("/tupper/v1/images").json()}
    host.kill_9()
    host.start()
    with host.client() as again:
        body = {"timeout": 100, "envVars": {"MINE": "yes"}, "metadata": {"a": "b"}}
        first = again.post("/v2/sandboxes", json={**body, "templateID": snapshot}).json()
        second = again.post("/v2/sandboxes", json={**body, "templateID": "warm:v1"}).json()
        assert run(first, "echo $MINE $PATH").startswith("yes /")
        assert f" {pid} " in run(second, "ps -o pid,args | sed 's/^ */ /'")
        refused = again.post(
            "/v2/sandboxes", json={"templateID": snapshot, "tupper": {"memoryMiB": 4096}}
        )
        assert refused.status_code == 400
        missing = again.post("/v2/sandboxes", json={"templateID": "p" + "x" * 20})
        assert missing.status_code == 404
        assert again.delete(f"/templates/{snapshot.replace(':', '%3A')}").status_code == 204
        assert again.delete(f"/templates/{snapshot.replace(':', '%3A')}").status_code == 404
        assert ticks(first)
        for one in (first, second):
            again.delete(f"/sandboxes/{one['sandboxID']}")
        assert not list((host.paths.data / "snapshots").glob("*"))
    assert host.leftovers() == []


@pytest.mark.parametrize("doing", ["pause", "resume", "snapshots"])
def test_kill_9_in_the_middle_loses_nothing(host, http, doing):
    """At many moments: afterwards it runs or is paused, with all that was in it."""
    made = create(http, name="crash")
    start(made, TICKER)
    run(made, "echo precious > /home/user/f; sync")
    for delay_s in (0.01, 0.05, 0.1, 0.2):
        with host.client() as client:
            if client.get("/sandboxes/crash").json()["state"] == "paused":
                resume(client, made)
            if doing == "resume":
                pause(client, made)
        with socket.socket(socket.AF_UNIX) as asker:
            asker.connect(str(host.paths.socket))
            asker.sendall(
                f"POST /sandboxes/crash/{doing} HTTP/1.1\r\nHost: t\r\n"
                "Content-Length: 2\r\n\r\n{}".encode()
            )
            time.sleep(delay_s)
            host.kill_9()
        host.start()
        with host.client() as client:
            if client.get("/sandboxes/crash").json()["state"] == "paused":
                until(lambda: on_the_host(host, made["sandboxID"]) == [], "nothing is left")
                resume(client, made)
            until(
                lambda c=client: c.get("/sandboxes/crash").json()["tupper"]["health"] == "ok",
                "it answers",
            )
        assert run(made, "cat /home/user/f").strip() == "precious"
        now = ticks(made)
        assert now == list(range(1, len(now) + 1))
    with host.client() as client:
        assert client.delete("/sandboxes/crash").status_code == 204
        left = [p.name for p in (host.paths.data / "snapshots").glob("tmp-*")]
        assert left == []
        for snapshot in client.get("/snapshots").json():
            client.delete("/templates/" + snapshot["snapshotID"].replace(":", "%3A"))
    assert host.leftovers() == []


def test_a_sandbox_whose_time_is_over_is_paused_if_that_was_asked_for(host, http):
    body = {"templateID": "minimal", "timeout": 300, "autoPause": True}
    made = http.post("/v2/sandboxes", json=body).json()
    path = f"/sandboxes/{made['sandboxID']}"
    assert http.get(path).json()["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
    pid = start(made, TICKER)
    assert http.post(f"{path}/timeout", json={"timeout": 0}).status_code == 204
    until(lambda: http.get(path).json()["state"] == "paused", "pause", 60)
    again = resume(http, made, timeout=400)
    assert f" {pid} " in run(again, "ps -o pid,args | sed 's/^ */ /'")
    left_s = http.get(path).json()["tupper"]["deadline"] - time.time()
    assert 300 < left_s <= 400


def test_a_machine_that_dies_while_it_is_paused_is_noticed(host, http):
    made = create(http, name="dies")
    machine = host.machine(made["sandboxID"])
    os.kill(machine["pid"], signal.SIGKILL)
    until(lambda: not is_alive(machine["pid"], machine["start_ticks"]), "end")
    assert http.post("/sandboxes/dies/pause").status_code in (404, 409, 500, 503)
    until(lambda: http.get("/sandboxes/dies").status_code == 404, "ended")
    until(lambda: host.leftovers() == [], "removed")


def test_a_snapshot_of_another_version_is_refused(host, http):
    import sqlite3

    made = create(http)
    kept = http.post(f"/sandboxes/{made['sandboxID']}/snapshots", json={}).json()
    host.kill_9()
    name = kept["snapshotID"].partition(":")[0]
    db = sqlite3.connect(host.paths.data / "tupper.db")
    (text,) = db.execute("SELECT record FROM snapshots WHERE id = ?", (name,)).fetchone()
    record = json.loads(text)
    record["saved"]["version"] = "release-19700101.0"
    db.execute("UPDATE snapshots SET record = ? WHERE id = ?", (json.dumps(record), name))
    db.commit()
    db.close()
    host.start()
    with host.client() as again:
        refused = again.post("/v2/sandboxes", json={"templateID": name})
        assert refused.status_code == 501
        assert "release-19700101.0" in refused.json()["message"]
        again.delete(f"/templates/{name}")
        again.delete(f"/sandboxes/{made['sandboxID']}")
    assert host.leftovers() == []


# A data directory that was copied is another engine's.


@pytest.fixture
def copy(host):
    """The home of another host, not there yet."""
    home = host.paths.data.with_name("copy")
    made = Host(home)
    yield made
    if made.process is not None:
        with made.client() as http:
            for sandbox in http.get("/v2/sandboxes").json():
                http.delete(f"/sandboxes/{sandbox['sandboxID']}")
        made.process.terminate()
        made.process.wait(20)
    shutil.rmtree(home, ignore_errors=True)


def copy_home(source, target):
    """``cp -a``, but for what is never written to: that is linked, to save the room."""
    link_home(source, target, without={"base", "code-interpreter"})
    linked = {name.split("/")[0] for name in KEPT}
    entries = [str(entry) for entry in source.iterdir() if entry.name not in linked]
    subprocess.run(["cp", "-a", "-t", str(target), "--", *entries], check=True, timeout=120)


def test_the_copy_touches_nothing_of_the_original(host, http, copy):
    runs, rests = create(http, name="runs"), create(http, name="rests")
    start(rests, TICKER)
    until(lambda: len(ticks(rests)) > 2, "ticks")
    pause(http, rests)
    first = http.get("/tupper/v1/info").json()["engineId"]
    host.process.terminate()
    host.process.wait(20)
    copy_home(host.paths.data, copy.paths.data)
    host.start()
    copy.start()

    with host.client() as here, copy.client() as there:
        assert here.get("/tupper/v1/info").json()["engineId"] == first
        second = there.get("/tupper/v1/info").json()["engineId"]
        assert second != first
        left = there.get(f"/sandboxes/{runs['sandboxID']}", params={"ended": "true"}).json()
        assert left["tupper"]["endReason"] == "left_behind"
        assert run(runs, "echo lives") == "lives\n"

        # What was paused is there twice, and both go on.
        for client in (here, there):
            again = resume(client, rests)
            seen = ticks(again)
            until(lambda a=again, s=seen: len(ticks(a)) > len(s), "it goes on")
        own = create(there)
        assert run(own, "echo own") == "own\n"
        for sandbox in there.get("/v2/sandboxes").json():
            assert there.delete(f"/sandboxes/{sandbox['sandboxID']}").status_code == 204
        assert copy.leftovers() == []
        assert run(runs, "echo lives") == "lives\n"
        assert here.get("/sandboxes/rests").json()["state"] == "running"

    # Started again where it is now, it is the same one.
    copy.kill_9()
    copy.start()
    with copy.client() as there:
        assert there.get("/tupper/v1/info").json()["engineId"] == second
