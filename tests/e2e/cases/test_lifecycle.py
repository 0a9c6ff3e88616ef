"""Lifetimes: death, cancellation, races, deadlines, kills, what a failed start leaves."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from e2e.cases.waiting import wait_for
from tupper import (
    AsyncSandbox,
    InvalidArgumentException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
)

LIMIT_S = 30


def _machine_pids(sandbox):
    """The processes on this host that carry the sandbox's id in their command line."""
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if sandbox.sandbox_id.encode() in line and b"runsc" in line:
                pids.append(int(entry))
    return pids


def _running_ids():
    paginator = Sandbox.list()
    ids = []
    while paginator.has_next:
        ids += [info.sandbox_id for info in paginator.next_items()]
    return ids


@pytest.mark.parametrize("way", ["stopped", "killed by the host", "killed by another client"])
def test_tb037_a_death_ends_every_call(make, way):
    sandbox = make()
    handle = sandbox.commands.run("sleep 600", background=True, timeout=0)
    pids = _machine_pids(sandbox)
    assert pids
    ended = []

    def wait():
        try:
            handle.wait()
        except SandboxException as error:
            ended.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    if way == "stopped":
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    elif way == "killed by the host":
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    else:
        subprocess.run(
            [sys.executable, "-m", "tupper", "kill", sandbox.sandbox_id],
            check=True,
            timeout=LIMIT_S,
        )
    try:
        with pytest.raises(SandboxException):
            sandbox.commands.run("echo x", timeout=5)
        if way != "stopped":
            waiter.join(LIMIT_S)
            assert ended
            assert sandbox.is_running() is False
    finally:
        if way == "stopped":
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            sandbox.kill()
        waiter.join(LIMIT_S)
    assert not waiter.is_alive()
    assert isinstance(ended[0], SandboxException)


def test_tb039_interrupt_leaves_nothing(tmp_path):
    marker = uuid.uuid4().hex
    script = tmp_path / "script.py"
    script.write_text(
        "from tupper import Sandbox\n"
        f"with Sandbox.create(metadata={{'m': '{marker}'}}) as s:\n"
        "    print('up', flush=True)\n    s.commands.run('sleep 300', timeout=0)\n"
    )
    child = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=LIMIT_S)
    assert "KeyboardInterrupt" in err
    assert "was destroyed" not in err
    assert "loop is closed" not in err
    _none_left(marker)


def test_tb039_cancelled_creates_leave_nothing():
    marker = uuid.uuid4().hex

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(AsyncSandbox.create(metadata={"m": marker}), 0.05)

        async def body():
            async with await AsyncSandbox.create(metadata={"m": marker}) as sandbox:
                up.set()
                await sandbox.commands.run("sleep 300", timeout=0)

        up = asyncio.Event()
        task = asyncio.create_task(body())
        await up.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    _none_left(marker)


def test_tb039_exit_without_kill(tmp_path):
    marker = uuid.uuid4().hex
    code = (
        "import sys; from tupper import Sandbox; "
        f"Sandbox.create(metadata={{'m': '{marker}'}}, owner='process'); sys.exit(3)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, capture_output=True
    )
    assert ended.returncode == 3, ended.stderr
    assert b"Traceback" not in ended.stderr
    _none_left(marker)


def _none_left(marker):
    def gone():
        from tupper import SandboxQuery

        return Sandbox.list(query=SandboxQuery(metadata={"m": marker})).next_items() == []

    wait_for(gone)


def test_tb041_one_client_many_threads(sbx, threads):
    def work(index):
        def body():
            path = f"/tmp/thread-{index}"
            for _ in range(50):
                assert sbx.commands.run(f"echo {index}", timeout=120).stdout == f"{index}\n"
            sbx.files.write(path, str(index))
            return sbx.files.read(path)

        return body

    assert threads([work(index) for index in range(32)]) == [str(index) for index in range(32)]


def test_tb043_many_creates_at_once(make, threads):
    made = threads([make] * 24)
    assert len({sandbox.sandbox_id for sandbox in made}) == 24
    addresses = [sandbox.commands.run("hostname -I").stdout.strip() for sandbox in made]
    assert len(set(addresses)) == 24


def test_tb043_one_name_one_winner(make, threads):
    name = "n" + uuid.uuid4().hex[:8]

    def attempt():
        try:
            return make(name=name)
        except SandboxException as error:
            return error

    results = threads([attempt] * 8)
    winners = [result for result in results if not isinstance(result, SandboxException)]
    assert all(name in str(result) for result in results if result not in winners)
    assert len(winners) == 1
    assert winners[0].commands.run("echo mine").stdout == "mine\n"


def test_tb085_connect_never_shortens(make):
    sandbox = make(timeout=1800)
    end = sandbox.get_info().end_at
    Sandbox.connect(sandbox.sandbox_id)
    Sandbox.connect(sandbox.sandbox_id, timeout=60)
    subprocess.run(
        [sys.executable, "-m", "tupper", "exec", sandbox.sandbox_id, "--", "true"],
        check=True,
        timeout=LIMIT_S,
    )
    assert sandbox.get_info().end_at >= end
    Sandbox.connect(sandbox.sandbox_id, timeout=3600)
    assert sandbox.get_info().end_at > end


def test_tb085_set_timeout_before_expiry_wins(make, threads):
    def attempt():
        sandbox = make(timeout=600)
        sandbox.set_timeout(2)
        time.sleep(1.9)
        try:
            sandbox.set_timeout(600)
        except SandboxNotFoundException:
            return True
        return sandbox.commands.run("echo alive", timeout=60).stdout == "alive\n"

    assert all(threads([attempt] * 8))


def test_tb087_a_kill_ends_what_is_in_flight(make, threads):
    sandbox = make()
    port = sandbox.get_host(8000)
    sandbox.commands.run(
        "python3 -c 'import socket,time;s=socket.socket();"
        's.bind(("127.0.0.1",8000));s.listen();time.sleep(600)\'',
        background=True,
        timeout=0,
    )
    watch = sandbox.files.watch_dir("/tmp")
    started = threading.Barrier(4)

    def run():
        started.wait()
        with pytest.raises(SandboxException):
            sandbox.commands.run("sleep 300", timeout=0)

    def upload():
        def endless():
            while True:
                yield b"x" * 65536

        started.wait()
        with pytest.raises(SandboxException):
            sandbox.files.write("/dev/shm/endless", endless())

    def get():
        import urllib.request

        started.wait()
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{port}/", timeout=60).read()

    def kill():
        started.wait()
        time.sleep(1)
        subprocess.run(
            [sys.executable, "-m", "tupper", "kill", sandbox.sandbox_id],
            check=True,
            timeout=LIMIT_S,
        )

    threads([run, upload, get, kill])
    with pytest.raises(SandboxException):
        watch.get_new_events()


def test_kill_twice_and_of_the_unknown(make):
    sandbox = make()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert Sandbox.kill("i" + "0" * 20) is False
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_deadline_ends_a_sandbox(make):
    sandbox = make(timeout=3)
    wait_for(lambda: not sandbox.is_running())
    assert sandbox.sandbox_id not in _running_ids()


def test_idle_timeout_spares_the_busy(make):
    busy = make(idle_timeout=3)
    idle = make(idle_timeout=3)
    assert busy.commands.run("sleep 8; echo done", timeout=60).stdout == "done\n"
    wait_for(lambda: not idle.is_running())


def test_tb089_failed_starts_leave_room_for_good_ones(make):
    name = "f" + uuid.uuid4().hex[:8]
    before = set(_running_ids())
    for bad in ({"memory": 1}, {"cpus": 0}, {"disk": 1}, {"template": "no-such-template"}):
        with pytest.raises(SandboxException):
            make(name=name, **bad)
    with pytest.raises(InvalidArgumentException, match="platfrom"):
        make(name=name, backend_options={"platfrom": "ptrace"})
    assert set(_running_ids()) == before
    assert make(name=name).commands.run("echo good").stdout == "good\n"


def test_tb089_a_port_in_use(make):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SandboxException, match=str(port)):
            make(ports={port: 8000})
    assert make(ports={port: 8000}).is_running()
