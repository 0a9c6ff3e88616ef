"""A machine on KVM at work, saved, copied; and what of it no other kind of processor gets."""

import json
from dataclasses import replace

import pytest

from backend_parts import shared_data_dir
from qemu_guest import Guest, make_backend, plan_for
from tupper.backends.qemu.options import Accel
from tupper.backends.qemu.warm import Warm
from tupper.core.errors import Unsupported
from tupper.testing.contract import assert_nothing_left


async def emulating(backend):
    """A backend that has found the emulator where this one has found KVM."""
    other = make_backend(accel="tcg")
    other._prober._found = replace(await backend._prober.find(), accel=Accel.TCG)
    return other


async def test_work_goes_on_in_a_copy_and_nowhere_else(backend, place, rootfs):
    plan = plan_for(place, rootfs)
    async with Guest(backend, plan) as guest:
        assert "kvm-clock" in await guest.run(
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"
        )
        await guest.run("echo kept >/root/file")
        await guest.begin("i=0; while :; do i=$((i+1)); echo $i >/dev/shm/n; sleep 0.05; done")
        await guest.run("while ! [ -s /dev/shm/n ]; do sleep 0.05; done")
        snapshot = await guest.save(place / "saved")
        assert snapshot.data["accel"] == "kvm"
        await guest.run("echo changed >/root/file")
        copy = plan_for(place, rootfs)
        async with Guest(backend, copy, snapshot) as other:
            assert await other.run("cat /root/file") == "kept\n"
            seen = int(await other.run("cat /dev/shm/n"))
            await other.run(f"while [ $(cat /dev/shm/n) -le {seen} ]; do sleep 0.05; done")
    emulator, third = await emulating(backend), plan_for(place, rootfs)
    with pytest.raises(Unsupported, match="its accel is 'kvm', and here it is 'tcg'"):
        await emulator.restore(snapshot, third)
    for name, value in (("accel", "tcg"), ("processor", "GenuineIntel 6 1")):
        wrong = replace(snapshot, data={**snapshot.data, name: value})
        with pytest.raises(Unsupported, match=f"its {name} is '{value}'"):
            await backend.restore(wrong, third)
    await assert_nothing_left(third)


async def test_machines_that_wait_are_of_one_kind(backend, place, rootfs):
    plan = plan_for(place, rootfs)
    async with Guest(backend, plan):
        pass
    warm = shared_data_dir() / "backends" / "qemu" / "warm"
    kinds = {json.loads(file.read_text())["accel"] for file in warm.glob("*/facts.json")}
    assert kinds == {"kvm"}
    ours = (await backend._prepare(plan)).facts
    theirs = (await (await emulating(backend))._prepare(plan)).facts
    assert Warm(warm).find(Warm.key(ours)) is not None
    assert Warm(warm).find(Warm.key(theirs)) is None


async def test_qemu_has_one_group_and_nothing_else(backend, place, rootfs):
    async with Guest(backend, plan_for(place, rootfs)) as guest:
        with open(f"/proc/{guest.machine.record.pid}/status") as file:
            fields = dict(line.split(":\t", 1) for line in file.read().splitlines())
        assert int(fields["Uid"].split()[0]) >= 0x70000000
        assert fields["Groups"].split() == ["36"]
        assert int(fields["CapBnd"], 16) == 0
