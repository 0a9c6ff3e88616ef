"""What goes wrong with virtual machines, and what is left then: nothing."""

import asyncio
import contextlib
import json
import os
import subprocess
from dataclasses import replace

import pytest

from backend_parts import remove, shared_data_dir
from qemu_guest import SETTINGS, Guest, make_backend, make_root, mount_small, plan_for
from tupper.backends.qemu import kvm
from tupper.core.backend import Attachment, Isolation
from tupper.core.errors import (
    BackendUnavailable,
    InvalidArgument,
    MachineFailed,
    OutOfDisk,
    Unsupported,
)
from tupper.core.lifecycle import EndReason
from tupper.testing.contract import assert_nothing_left

_SAVED = []
pytestmark = [pytest.mark.root, pytest.mark.timeout(180)]


@pytest.fixture
async def plan(place, rootfs, backend):
    probe = await backend.probe()
    if not probe.usable:
        pytest.skip(probe.reason)
    return plan_for(place, rootfs)


def warm_machines():
    return {path.name for path in (shared_data_dir() / "backends" / "qemu" / "warm").glob("*")}


def is_emulated():
    return SETTINGS["accel"] == "tcg"


async def test_probe_says_what_runs_instructions(backend, plan):
    probe = await backend.probe()
    tiers = {"tcg": Isolation.EMULATED_VM, "kvm": Isolation.HARDWARE_VM}
    assert probe.isolation is tiers[SETTINGS["accel"]]
    assert probe.mechanism == f"QEMU {SETTINGS['accel'].upper()}"
    assert probe.kernel


async def test_no_qemu(place):
    probe = await make_backend(qemu=str(place / "none")).probe()
    assert not probe.usable
    assert "none" in probe.reason
    assert "apt-get install" in probe.remedy
    with pytest.raises(BackendUnavailable):
        await make_backend(qemu=str(place / "none")).start(plan_for(place, make_root(place / "r")))


async def test_old_qemu(place):
    old = place / "old-qemu"
    old.write_text("#!/bin/sh\necho QEMU emulator version 5.2.0\n")
    old.chmod(0o755)
    probe = await make_backend(qemu=str(old)).probe()
    assert not probe.usable
    assert "5.2.0, and QEMU 7.2 is needed" in probe.reason


async def test_kvm_that_hangs_is_found_out():
    said = await kvm.attempt(["sh", "-c", "echo begun; exec sleep 600"], kvm.DEVICE)
    assert "did not run some instructions within 1 s" in said


async def test_kvm_trial_that_never_begins(monkeypatch):
    monkeypatch.setattr(kvm, "BEGINS_S", 0.1)
    assert "did not begin within 0.1 s" in await kvm.attempt(["sleep", "600"], kvm.DEVICE)


async def test_kvm_that_answers_nonsense():
    assert "no such" in await kvm.attempt(["sh", "-c", "echo no such thing; exit 1"], kvm.DEVICE)
    assert await kvm.attempt(["printf", "begun\nok\n"], kvm.DEVICE) == ""


async def test_guest_is_who_it_should_be(backend, plan):
    async with Guest(backend, plan) as guest:
        said = await guest.run("uname -n; head -1 /proc/meminfo; cat /etc/hosts; id -u")
        assert said.splitlines()[0] == "box"
        assert int(said.split("MemTotal:")[1].split()[0]) in range(150 * 1024, 257 * 1024)
        assert "localhost box" in said
        assert said.splitlines()[-1] == "0"


async def test_processes_of_the_host_have_no_privilege(backend, plan):
    async with Guest(backend, plan) as guest:
        record = guest.machine.record
        for pid in (record.pid, record.data["relay_pid"]):
            with open(f"/proc/{pid}/status") as file:
                fields = dict(line.split(":\t", 1) for line in file.read().splitlines())
            assert int(fields["Uid"].split()[0]) >= 0x70000000
            assert int(fields["CapBnd"], 16) == 0
            assert fields["NoNewPrivs"] == "1"
        assert fields["Groups"].strip() == ""


async def test_second_start_does_not_boot(backend, place, plan, rootfs):
    async with Guest(backend, plan):
        pass
    before = warm_machines()
    assert before
    other = plan_for(place, rootfs, hostname="other")
    async with Guest(backend, other) as guest:
        assert (await guest.run("uname -n")).strip() == "other"
    assert warm_machines() == before


async def test_two_that_begin_at_one_place_differ(backend, place, plan, rootfs):
    async with Guest(backend, plan):
        pass
    plans = [plan_for(place, rootfs) for _ in range(2)]
    async with Guest(backend, plans[0]) as one, Guest(backend, plans[1]) as two:
        script = "head -c 16 /dev/urandom | od -x; cat /proc/sys/kernel/random/uuid; date +%s"
        said = await asyncio.gather(one.run(script), two.run(script))
        first, second = (text.split() for text in said)
        assert not set(first[:-1]) & set(second[:-1]) - {first[0], first[9]}
        assert abs(int(first[-1]) - int(second[-1])) < 60


async def test_two_that_begin_at_one_place_have_a_disk_each(backend, place, plan, rootfs):
    async with Guest(backend, plan):
        pass
    plans = [plan_for(place, rootfs) for _ in range(2)]
    async with Guest(backend, plans[0]) as one, Guest(backend, plans[1]) as two:
        told = {one: "one", two: "two"}
        for guest, word in told.items():
            await guest.run(f"echo {word} >/kept; sync; echo 3 >/proc/sys/vm/drop_caches")
        for guest, word in told.items():
            assert await guest.run("cat /kept") == f"{word}\n"
    async with Guest(backend, plan_for(place, rootfs)) as third:
        assert await third.run("ls /kept 2>/dev/null || echo none") == "none\n"


async def test_machine_that_does_not_load_boots_instead(backend, place, plan, rootfs, monkeypatch):
    """Also with a network, which the first try has connected already."""
    with network(f"tq-one-{os.getpid()}") as one, network(f"tq-two-{os.getpid()}") as two:
        async with Guest(backend, plan_for(place, rootfs, attachment=one)):
            pass

        async def fail(control, state):
            raise MachineFailed("not today")

        monkeypatch.setattr("tupper.backends.qemu.saving.load", fail)
        async with Guest(backend, plan_for(place, rootfs, attachment=two)) as guest:
            assert "10.9.9.2" in await guest.run("cat /proc/net/fib_trie")


@contextlib.contextmanager
def network(name):
    """A network that leads nowhere."""
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        argv = f"ip -n {name} link add eth0 type veth peer name other".split()
        subprocess.run(argv, check=True)
        yield Attachment(netns=name, interface="eth0", address="10.9.9.2/30", gateway="10.9.9.1")
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize("name", ["ram", "state", "disk"])
async def test_damaged_place_to_begin_is_thrown_away(backend, place, plan, rootfs, name):
    async with Guest(backend, plan):
        pass
    fresh = make_backend()  # which has read nothing yet
    warm = shared_data_dir() / "backends" / "qemu" / "warm"
    facts = (json.dumps({"root": rootfs.digest})[1:-1], '"network": false')
    (directory,) = [
        d for d in warm.iterdir() if all(f in (d / "facts.json").read_text() for f in facts)
    ]
    os.truncate(directory / name, 5000)
    async with Guest(fresh, plan_for(place, rootfs)):
        pass  # it has booted, and is kept again
    assert (directory / name).stat().st_size > 5000


async def test_kernel_panic(backend, plan):
    async with Guest(backend, plan) as guest:
        await guest.begin("echo c >/proc/sysrq-trigger")
        end = await guest.end()
        assert end.reason is EndReason.KERNEL_PANIC
        assert "panic" in end.last_words


@pytest.mark.parametrize("verb", ["poweroff", "halt", "reboot"])
async def test_guest_that_ends_itself(backend, plan, verb):
    async with Guest(backend, plan) as guest:
        await guest.begin(f"busybox {verb} -f")
        assert (await guest.end()).reason is EndReason.POWERED_OFF


async def test_agent_that_is_asked_to_end(backend, plan):
    async with Guest(backend, plan) as guest:
        await asyncio.to_thread(guest.post, "/tupper/shutdown", {"graceMs": 0})
        assert (await guest.end()).reason is EndReason.AGENT_DIED


async def test_relay_that_is_killed_is_the_end(backend, plan):
    async with Guest(backend, plan) as guest:
        os.kill(guest.machine.record.data["relay_pid"], 9)
        assert (await guest.end()).reason is EndReason.MACHINE_DIED


async def test_guest_that_floods_its_console(backend, plan):
    async with Guest(backend, plan) as guest:
        await guest.run("head -c 3000000 /dev/zero | tr '\\0' x >/dev/console; echo done")
        run = plan.directory / "machine" / "run"
        assert sum(path.stat().st_size for path in run.glob("console*")) <= 1 << 17


async def test_disk_has_an_end(backend, plan):
    async with Guest(backend, plan) as guest:
        said = await guest.run("dd if=/dev/zero of=/root/full bs=1M count=400 2>&1; rm /root/full")
        assert "No space left on device" in said
        assert (await guest.run("echo fine >/root/x; cat /root/x")) == "fine\n"
        usage = await guest.machine.usage()
        assert 0 < usage.disk_bytes <= 256 << 20
        assert usage.cpu_s > 0


async def test_processes_and_files_go_on_in_a_copy(backend, place, plan, rootfs):
    async with Guest(backend, plan) as guest:
        await guest.run("echo kept >/root/file")
        count = "i=0; while :; do i=$((i+1)); echo $i >/dev/shm/count; sleep 0.05; done"
        await guest.begin(count)
        await guest.run("while ! [ -s /dev/shm/count ]; do sleep 0.05; done")
        snapshot = await guest.save(place / f"{plan.sandbox_id}-snap")
        await guest.run("echo changed >/root/file")
        other = plan_for(place, rootfs)
        async with Guest(backend, other, snapshot) as copy:
            assert await copy.run("cat /root/file") == "kept\n"
            first = int(await copy.run("cat /dev/shm/count"))
            await copy.run(f"while [ $(cat /dev/shm/count) -le {first} ]; do sleep 0.05; done")
            again = await copy.save(place / f"{plan.sandbox_id}-again")
            third = plan_for(place, rootfs)
            async with Guest(backend, third, again) as grandchild:
                assert int(await grandchild.run("cat /dev/shm/count")) > first
        assert await guest.run("cat /root/file") == "changed\n"


async def test_clock_of_a_copy_is_right(backend, place, plan, rootfs):
    async with Guest(backend, plan) as guest:
        snapshot = await guest.save(place / f"{plan.sandbox_id}-snap")
    async with Guest(backend, plan_for(place, rootfs), snapshot) as copy:
        before = await asyncio.to_thread(subprocess.check_output, ["date", "+%s"])
        inside = int(await copy.run("date +%s"))
        assert -1 <= inside - int(before) <= 30


@pytest.mark.parametrize("name", ["ram", "state", "disk"])
@pytest.mark.parametrize("harm", ["cut", "altered", "gone"])
async def test_damaged_snapshot(backend, place, rootfs, saved, name, harm):
    snapshot = saved(place / f"{name}-{harm}")
    path = snapshot.directory / name
    if harm == "cut":
        os.truncate(path, path.stat().st_size - 4096)
    elif harm == "altered":
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"tupper")
    else:
        path.unlink()
    plan = plan_for(place, rootfs)
    with pytest.raises(MachineFailed):
        await backend.restore(snapshot, plan)
    await assert_nothing_left(plan)


@pytest.fixture
async def saved(place, rootfs, backend, plan):
    """Makes copies of one snapshot."""
    whole = place / "whole"
    if not _SAVED:
        async with Guest(backend, plan) as guest:
            _SAVED.append(await guest.save(whole))

    def copy(into):
        subprocess.run(["cp", "-a", "--sparse=always", str(whole), str(into)], check=True)
        return replace(_SAVED[0], directory=into)

    return copy


async def test_snapshot_of_another_kind(backend, place, rootfs, saved):
    snapshot = saved(place / "another")
    plan = plan_for(place, rootfs)
    for wrong in (
        replace(snapshot, version="6.0.0"),
        replace(snapshot, data={**snapshot.data, "accel": "kvm" if is_emulated() else "tcg"}),
        replace(snapshot, data={**snapshot.data, "kernel": "x"}),
    ):
        with pytest.raises(Unsupported):
            await backend.restore(wrong, plan)
    await assert_nothing_left(plan)


async def test_disk_full_while_it_is_saved(backend, place, plan):
    small = place / "small"
    mount_small(small, 1)
    try:
        async with Guest(backend, plan) as guest:
            for name in ("one", "two"):
                with pytest.raises(OutOfDisk):
                    await guest.save(small / name)
                assert await guest.run("echo alive") == "alive\n"
                remove(small / name)
    finally:
        subprocess.run(["umount", str(small)], check=True)


async def test_what_it_cannot_do(backend, plan, place):
    with pytest.raises(Unsupported, match="builds"):
        await backend.start(replace(plan, disk_image=None))
    with pytest.raises(InvalidArgument, match="64 MiB"):
        await backend.start(replace(plan, memory_mib=32))
    await assert_nothing_left(plan)
