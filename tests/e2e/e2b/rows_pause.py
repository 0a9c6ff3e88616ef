"""Pauses, snapshots and forks. Rows of the checklist; see ``rows``."""

import os
import threading

from rows_common import NotHere, dear, http, new_name, row

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def has(w, name):
    """Skip the row where this version has no such call."""
    if not hasattr(w.Sandbox, name) and not hasattr(getattr(w.Sandbox, "inner", None), name):
        raise NotHere(f"no {name} in this version")


def all_of(paginator):
    found = []
    while paginator.has_next:
        found += paginator.next_items()
    return found


@dear
@row
def row_pause_keeps_processes_and_files(w):
    made = w.create(envs={"LEVEL": "paused"}, metadata={"pause": "me"})
    made.files.write("kept.txt", "before")
    handle = made.commands.run("while :; do date >> /tmp/beats; sleep 0.1; done", background=True)
    boot_id = made.commands.run(BOOT_ID).stdout
    assert made.pause() is not False
    assert made.is_running() is False
    assert made.get_info().state.value == "paused"
    assert made.pause() in (False, None)
    again = made.connect(timeout=200)
    assert again.sandbox_id == made.sandbox_id
    assert made.is_running() is True
    assert made.get_info().state.value == "running"
    assert made.files.read("kept.txt") == "before"
    assert made.commands.run(BOOT_ID).stdout == boot_id
    assert made.commands.run("echo $LEVEL").stdout == "paused\n"
    assert handle.pid in [each.pid for each in made.commands.list()]
    beats = len(made.files.read("/tmp/beats").splitlines())
    w.wait_for(lambda: len(made.files.read("/tmp/beats").splitlines()) > beats)
    assert made.commands.kill(handle.pid) is True


@dear
@row
def row_pause_by_id_and_connect_by_id(w):
    made = w.create()
    server = made.commands.run("cd /tmp && python3 -m http.server 8000", background=True)
    fetch = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8000/"
    ready = f"for i in $(seq 100); do {fetch} | grep -q 200 && break; sleep 0.1; done"
    made.commands.run(ready, timeout=60)
    w.Sandbox.pause(made.sandbox_id)
    other = w.Sandbox.connect(made.sandbox_id)
    assert other.sandbox_id == made.sandbox_id
    assert other.commands.run(fetch).stdout == "200"
    assert server.pid in [each.pid for each in other.commands.list()]


@row
def row_pause_not_found(w):
    nothing = "i" + "0" * 20
    w.raises("NotFoundException", lambda: w.Sandbox.pause(nothing))


@row
def row_pause_listed_and_killed(w):
    label = new_name()
    running, paused = (w.create(metadata={"who": label}) for _ in range(2))
    paused.pause()

    def ids(*states):
        query = w.sdk.SandboxQuery(metadata={"who": label}, state=list(states) or None)
        return {each.sandbox_id for each in all_of(w.Sandbox.list(query=query))}

    state = w.sdk.SandboxState
    assert ids() == {running.sandbox_id, paused.sandbox_id}
    assert ids(state.PAUSED) == {paused.sandbox_id}
    assert ids(state.RUNNING) == {running.sandbox_id}
    assert paused.kill() is True
    assert paused.kill() is False
    assert ids() == {running.sandbox_id}
    w.raises("NotFoundException", lambda: w.Sandbox.connect(paused.sandbox_id))


@row
def row_pause_when_the_time_is_over(w):
    if w.package == "e2b" and w.version < (2, 46):
        lifecycle = {"on_timeout": "pause", "auto_resume": False}
    else:
        lifecycle = {"on_timeout": "pause"}
    made = w.create(lifecycle=lifecycle)
    made.files.write("kept.txt", "x")
    made.set_timeout(0)
    w.wait_for(lambda: made.get_info().state.value == "paused", 60)
    assert made.is_running() is False
    made.connect(timeout=100)
    assert made.files.read("kept.txt") == "x"


@dear
@row
def row_snapshot_starts_others(w):
    has(w, "create_snapshot")
    made = w.create()
    made.files.write("f.txt", "first")
    pid = made.commands.run("sleep 6000", background=True).pid
    kept = made.create_snapshot()
    assert made.is_running() is True
    made.files.write("f.txt", "second")
    assert kept.snapshot_id in [s.snapshot_id for s in all_of(made.list_snapshots())]
    others = [w.create(kept.snapshot_id) for _ in range(2)]
    for index, other in enumerate(others):
        assert other.files.read("f.txt") == "first"
        assert pid in [each.pid for each in other.commands.list()]
        other.files.write("f.txt", str(index))
    assert [other.files.read("f.txt") for other in others] == ["0", "1"]
    assert made.files.read("f.txt") == "second"
    info = others[0].get_info()
    query = w.sdk.SandboxQuery(metadata={})
    assert info.sandbox_id in [s.sandbox_id for s in all_of(w.Sandbox.list(query=query))]
    for other in others:
        other.kill()
    assert w.Sandbox.delete_snapshot(kept.snapshot_id) is True
    assert w.Sandbox.delete_snapshot(kept.snapshot_id) is False
    w.raises("SandboxException", lambda: w.create(kept.snapshot_id))


@row
def row_snapshot_with_a_name(w):
    has(w, "create_snapshot")
    made, name = w.create(), new_name()
    try:
        kept = made.create_snapshot(name=name)
    except TypeError as error:
        raise NotHere("no names of snapshots in this version") from error
    try:
        assert any(name in each for each in kept.names)
        found = all_of(w.Sandbox.list_snapshots(name=name))
        assert [each.snapshot_id for each in found] == [kept.snapshot_id]
        assert all_of(w.Sandbox.list_snapshots(name=new_name())) == []
        assert w.create(name).commands.run("echo here").stdout == "here\n"
    finally:
        w.Sandbox.delete_snapshot(kept.snapshot_id)
    w.raises("NotFoundException", lambda: w.Sandbox.create_snapshot("i" + "0" * 20))


@row
def row_fork_diverges(w):
    has(w, "fork")
    made = w.create(envs={"LEVEL": "source"}, metadata={"fork": "me"})
    made.files.write("f.txt", "shared")
    forks = made.fork(count=2)
    assert len({made.sandbox_id, *(each.sandbox_id for each in forks)}) == 3
    assert made.is_running() is True
    for index, each in enumerate(forks):
        assert each.files.read("f.txt") == "shared"
        each.files.write("f.txt", str(index))
        assert each.commands.run("echo $LEVEL").stdout == "source\n"
        assert each.get_info().metadata == {"fork": "me"}
    assert [each.files.read("f.txt") for each in (made, *forks)] == ["shared", "0", "1"]
    for each in forks:
        each.kill()
    w.raises("NotFoundException", lambda: w.Sandbox.fork("i" + "0" * 20))


@dear
@row
def row_snapshot_breaks_no_stream(w):
    has(w, "create_snapshot")
    made = w.create()
    count = 50
    script = f"for i in $(seq {count}); do echo $i; sleep 0.05; done; cat; echo over"
    handle = made.commands.run(script, background=True, stdin=True)
    ended = []
    waiter = threading.Thread(target=lambda: ended.append(handle.wait()), daemon=True)
    waiter.start()
    kept = [made.create_snapshot() for _ in range(3)]
    made.commands.send_stdin(handle.pid, "after the snapshots\n")
    kept.append(made.create_snapshot())
    made.commands.run("sleep 0.2")
    made.commands.close_stdin(handle.pid)
    waiter.join(60)
    numbers = "".join(f"{i}\n" for i in range(1, count + 1))
    assert [one.stdout for one in ended] == [numbers + "after the snapshots\nover\n"]
    for one in kept:
        assert w.Sandbox.delete_snapshot(one.snapshot_id) is True


@dear
@row
def row_pause_ends_when_somebody_comes(w):
    made = w.create(lifecycle={"on_timeout": "pause", "auto_resume": True}, timeout=250)
    made.commands.run("mkdir -p /tmp/www && echo hello > /tmp/www/f")
    made.commands.run("cd /tmp/www && python3 -m http.server 8000", background=True)
    ready = "curl -sf http://127.0.0.1:8000/f"
    made.commands.run(f"for i in $(seq 100); do {ready} && break; sleep 0.1; done", timeout=60)
    made.pause()
    if w.package == "e2b":
        url = os.environ["E2B_API_URL"]
        port = {"E2b-Sandbox-Id": made.sandbox_id, "E2b-Sandbox-Port": "49983"}
        assert http(f"{url}/health", headers=port)[0] == 403
        assert made.get_info().state.value == "paused"
        port["E2b-Sandbox-Port"] = "8000"
        assert http(f"{url}/f", headers=port) == (200, b"hello\n")
    assert made.commands.run(ready).stdout == "hello\n"
    info = made.get_info()
    assert info.state.value == "running"
    assert info.lifecycle == {"on_timeout": "pause", "auto_resume": True}
    assert 0 < (info.end_at - info.started_at).total_seconds() <= 251


@dear
@row
def row_pause_with_files_only(w):
    made = w.create(envs={"LEVEL": "cold"})
    made.files.write("kept.txt", "x")
    script = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; done"
    pid = made.commands.run(script, background=True).pid
    boot_id = made.commands.run(BOOT_ID).stdout
    made.pause(keep_memory=False)
    assert made.is_running() is False
    made.connect()
    count = made.files.read("/tmp/count")
    assert made.files.read("kept.txt") == "x"
    assert made.commands.run("echo $LEVEL").stdout == "cold\n"
    again = made.commands.run(BOOT_ID).stdout
    assert again != boot_id
    assert made.files.read("/proc/sys/kernel/random/boot_id") == again
    assert pid not in [each.pid for each in made.commands.list()]
    assert "while" not in made.commands.run("ps -eo args").stdout
    assert made.files.read("/tmp/count") == count


@dear
@row
def row_snapshot_with_files_only(w):
    if w.package == "e2b" and w.version < (2, 55):
        raise NotHere("no modes of snapshots in this version")
    made = w.create()
    made.files.write("kept.txt", "x")
    pid = made.commands.run("sleep 6000", background=True).pid
    kept = made.create_snapshot(mode="filesystem")
    assert pid in [each.pid for each in made.commands.list()]
    other = w.create(kept.snapshot_id)
    assert other.files.read("kept.txt") == "x"
    assert other.commands.list() == []
    made.pause()
    made.connect(on_resume="reboot")
    assert made.commands.list() == []
    assert made.files.read("kept.txt") == "x"
    assert w.Sandbox.delete_snapshot(kept.snapshot_id) is True
