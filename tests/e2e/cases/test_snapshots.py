"""Pauses and snapshots as people met them elsewhere: lost files, stale clocks, stale connections."""

import threading
import time

import pytest

from e2e.cases.waiting import wait_for
from tupper import PtySize, Sandbox, SandboxException

pytestmark = pytest.mark.timeout(400)


def test_tb031_every_cycle_of_pause_and_resume_keeps_every_file(make):
    """Ten times: each file, a log that grows and a database; the saved size does not grow."""
    sandbox = make()
    insert = (
        "import sqlite3,sys; db=sqlite3.connect('/home/user/db'); "
        "db.execute('CREATE TABLE IF NOT EXISTS t (n)'); "
        "db.execute('INSERT INTO t VALUES (?)', (sys.argv[1],)); db.commit()"
    )
    for turn in range(10):
        sandbox.files.write(f"f{turn}", str(turn))
        sandbox.commands.run(f'echo {turn} >> log; python3 -c "{insert}" {turn}')
        if turn % 2 == 0:
            sandbox.commands.run("sync")
        assert sandbox.pause()
        sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=900)
        assert [sandbox.files.read(f"f{i}") for i in range(turn + 1)] == [
            str(i) for i in range(turn + 1)
        ]
    assert sandbox.files.read("log").split() == [str(i) for i in range(10)]
    look = (
        "import sqlite3; db=sqlite3.connect('/home/user/db'); "
        "print(db.execute('PRAGMA integrity_check').fetchone()[0], "
        "db.execute('SELECT count(*) FROM t').fetchone()[0])"
    )
    assert sandbox.commands.run(f'python3 -c "{look}"').stdout == "ok 10\n"


def test_tb079_the_clock_is_right_after_a_resume_and_in_forks(make):
    """Time goes on while it is paused, as for a machine that sleeps; it never goes back."""
    sandbox = make()
    script = "import time; print(time.time(), time.monotonic())"

    def clocks(box):
        wall, monotonic = box.commands.run(f'python3 -c "{script}"').stdout.split()
        assert abs(float(wall) - time.time()) < 20  # a busy host; an old snapshot is way off
        return float(monotonic)

    before = clocks(sandbox)
    assert sandbox.pause()
    stopped = time.time()
    wait_for(lambda: time.time() > stopped + 3)
    sandbox.connect(timeout=900)
    date = float(sandbox.commands.run("date +%s.%N").stdout)
    assert stopped + 3 <= date <= time.time() + 0.5
    after = clocks(sandbox)
    assert after > before
    (fork,) = sandbox.fork()
    assert isinstance(fork, Sandbox)
    try:
        assert clocks(fork) > after
    finally:
        fork.kill()


def test_tb081_the_first_call_after_a_resume_meets_no_stale_connection(make):
    """A pool of warm connections, a pause, and calls at once; connections inside go on."""
    sandbox = make()
    talk = (
        "import socket,threading,time\n"
        "server=socket.create_server(('127.0.0.1',7000))\n"
        "def echo():\n"
        "    conn,_=server.accept()\n"
        "    while data:=conn.recv(99): conn.sendall(data)\n"
        "threading.Thread(target=echo,daemon=True).start()\n"
        "conn=socket.create_connection(('127.0.0.1',7000)); n=0\n"
        "while True:\n"
        "    n+=1; conn.sendall(b'x'); assert conn.recv(9)==b'x'\n"
        "    open('/tmp/talk','w').write(str(n)); time.sleep(0.02)\n"
    )
    sandbox.files.write("talk.py", talk)
    handle = sandbox.commands.run("python3 talk.py", background=True, timeout=0)

    def talked():
        text = sandbox.files.read("/tmp/talk") if sandbox.files.exists("/tmp/talk") else ""
        return int(text or 0)

    for turn in range(5):
        sandbox.files.write("f", f"saved {turn}")
        kept = sandbox.create_snapshot()
        for _ in range(5):
            assert sandbox.files.read("f") == f"saved {turn}"
        sandbox.files.write("f", "later")
        with Sandbox.create(kept.snapshot_id, timeout=300) as back:
            assert back.files.read("f") == f"saved {turn}"
        assert Sandbox.delete_snapshot(kept.snapshot_id)
        assert sandbox.pause()
        sandbox.connect(timeout=900)
        assert sandbox.files.read("f") == "later"
        seen = talked()
        wait_for(lambda seen=seen: talked() > seen)
    assert handle.pid in [each.pid for each in sandbox.commands.list()]


@pytest.mark.parametrize("kind", ["command", "limited", "terminal"])
def test_tb083_a_command_goes_on_after_a_pause_and_its_handle_says_so(make, kind):
    """Same pid, next number; the paused time does not count; the old handle ends with an error."""
    sandbox = make()
    script = "i=0; while :; do i=$((i+1)); echo n=$i; sleep 0.1; done"
    if kind == "terminal":
        handle = sandbox.pty.create(PtySize(24, 80), timeout=0)
        sandbox.pty.send_stdin(handle.pid, f"{script}\n".encode())
    else:
        limit_s = 600 if kind == "limited" else 0
        handle = sandbox.commands.run(script, background=True, timeout=limit_s)
    ended = []

    def follow():
        try:
            for _ in handle:
                pass
            ended.append(None)
        except SandboxException as error:
            ended.append(error)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    assert sandbox.pause()
    reader.join(60)
    assert not reader.is_alive()
    assert isinstance(ended[0], SandboxException)
    sandbox.connect(timeout=900)
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    again = (sandbox.pty if kind == "terminal" else sandbox.commands).connect(handle.pid)
    seen = ""
    for out, err, shown in again:
        data = out or err or shown
        seen += data.decode(errors="replace") if isinstance(data, bytes) else data
        if seen.count("n=") > 6:
            break
    numbers = [int(word[2:]) for word in seen.split() if word[:2] == "n=" and word[2:].isdigit()]
    assert numbers[1:-1] == list(range(numbers[1], numbers[1] + len(numbers) - 2))
    again.disconnect()
