"""What a user of the SDK meets on a virtual machine."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from e2e.cases.waiting import wait_for
from tupper import CommandExitException, Sandbox, SandboxException
from tupper.core.paths import find_paths

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_it_is_a_linux_of_its_own(shared, qemu_works):
    info = shared.get_info()
    assert (info.backend, info.isolation) == ("qemu", qemu_works.isolation)
    assert shared.commands.run("uname -r").stdout.strip() == qemu_works.kernel
    shared.commands.run(
        "mkdir -p /mnt/x && mount -t tmpfs none /mnt/x && umount /mnt/x", user="root"
    )


def test_stronger_isolation_takes_it_or_refuses(make, qemu_works):
    sandbox = make(backend="", min_isolation="emulated-vm")
    assert sandbox.get_info().backend == "qemu"
    if qemu_works.isolation != "hardware-vm":
        with pytest.raises(SandboxException, match="hardware-vm"):
            make(backend="", min_isolation="hardware-vm")
        with pytest.raises(SandboxException, match="weaker"):
            make(min_isolation="hardware-vm")


def test_commands_files_and_exit_codes(shared):
    assert shared.commands.run("echo out; echo err >&2").stderr == "err\n"
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run("exit 7")
    assert caught.value.exit_code == 7
    data = os.urandom(3_000_000)
    shared.files.write("/tmp/noise", data)
    assert bytes(shared.files.read("/tmp/noise", format="bytes")) == data
    assert "noise" in [entry.name for entry in shared.files.list("/tmp")]


def test_many_commands_at_once(shared):
    said = [""] * 12

    def one(number):
        said[number] = shared.commands.run(f"echo {number}; sleep 0.1").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(said))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [f"{number}\n" for number in range(len(said))]


def test_a_process_without_measure_is_ended_and_the_rest_goes_on(shared):
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run("tail /dev/zero")
    assert (caught.value.exit_code, caught.value.limit) == (137, "memory")
    assert shared.commands.run("echo alive").stdout == "alive\n"


def test_disk_is_as_large_as_was_asked_for(shared):
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run(
            "dd if=/dev/zero of=/root/full bs=1M count=400; s=$?; rm /root/full; exit $s",
            user="root",
        )
    assert "No space left" in caught.value.stderr


def test_network_is_that_of_the_policy(make):
    sandbox = make(allow_internet_access=False)
    said = sandbox.commands.run(
        "ip addr show dev eth0; ip route; cat /etc/resolv.conf", user="root"
    ).stdout
    assert "inet 10." in said
    assert "default via" in said
    gateway = said.split("default via ")[1].split()[0]
    sandbox.commands.run(f"ping -c 1 -W 20 {gateway}", user="root", timeout=60)
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("nc -w 20 1.1.1.1 80 </dev/null", timeout=60)
    assert caught.value.exit_code == 1


def test_pause_and_resume(make):
    sandbox = make()
    sandbox.files.write("/tmp/f", "kept")
    handle = sandbox.commands.run(
        "i=0; while :; do i=$((i+1)); echo $i >/tmp/n; sleep 0.1; done", background=True, timeout=0
    )
    wait_for(lambda: sandbox.files.exists("/tmp/n"))
    assert sandbox.pause()
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=900)
    assert sandbox.files.read("/tmp/f") == "kept"
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    seen = int(sandbox.files.read("/tmp/n") or 0)
    wait_for(lambda: int(sandbox.files.read("/tmp/n") or 0) > seen)
    assert abs(float(sandbox.commands.run("date +%s").stdout) - time.time()) < 20


def test_forks_are_others(make):
    sandbox = make()
    sandbox.files.write("/tmp/f", "kept")
    forks = sandbox.fork(count=3)
    try:
        assert all(isinstance(fork, Sandbox) for fork in forks)
        boxes = [sandbox, *forks]
        assert {box.files.read("/tmp/f") for box in boxes} == {"kept"}
        script = "head -c 16 /dev/urandom | od -An -x; hostname; cat /proc/sys/kernel/random/uuid; ip addr show dev eth0 | grep -o 'inet [0-9.]*'"
        said = [box.commands.run(script, user="root").stdout.splitlines() for box in boxes]
        for lines in zip(*said, strict=True):
            assert len(set(lines)) == len(boxes), lines
    finally:
        for fork in forks:
            fork.kill()


def test_snapshot_of_files_only(make):
    sandbox = make()
    sandbox.files.write("/root/f", "kept", user="root")
    kept = sandbox.create_snapshot()
    with Sandbox.create(kept.snapshot_id, timeout=300) as back:
        assert back.files.read("/root/f", user="root") == "kept"
    assert Sandbox.delete_snapshot(kept.snapshot_id)


def test_it_outlives_the_background_process(make):
    sandbox = make()
    handle = sandbox.commands.run("sleep 1000", background=True, timeout=0)
    pid = int((find_paths().runtime / "pid").read_text())
    whole = os.pidfd_open(pid)  # its leader is dead before its other threads are
    os.kill(pid, signal.SIGKILL)
    assert select.select([whole], [], [], 60)[0]
    os.close(whole)
    again = Sandbox.connect(sandbox.sandbox_id)
    assert handle.pid in [each.pid for each in again.commands.list()]
    assert again.commands.run("echo fine").stdout == "fine\n"


def test_why_it_ended(make):
    sandbox = make()
    sandbox.commands.run("echo c >/proc/sysrq-trigger", user="root", background=True)
    wait_for(lambda: not sandbox.is_running())
    argv = [sys.executable, "-m", "tupper", "info", "--json", sandbox.sandbox_id]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["end_reason"] == "kernel_panic"
