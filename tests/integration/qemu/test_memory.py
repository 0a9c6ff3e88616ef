"""Memory that a guest has freed goes back to the host, and what it keeps stays what it was."""

import os
from pathlib import Path

import pytest

from backend_parts import remove, temporary
from qemu_guest import Guest, make_backend, make_root, plan_for, until

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]
TAKEN_MIB, SEEN_MIB = 200, 150
FILL = f"head -c {TAKEN_MIB << 20} /dev/zero >/dev/shm/big && echo filled"


@pytest.fixture
def place():
    top = temporary("tm-")
    yield top
    remove(top)


@pytest.fixture
async def backend():
    backend = make_backend()
    probe = await backend.probe()
    if not probe.usable:
        pytest.skip(probe.reason)
    return backend


def held_mib(machine):
    """What the file in memory takes that is the guest's RAM."""
    for entry in Path(f"/proc/{machine.record.pid}/fd").iterdir():
        if "memfd:tupper-ram" in os.readlink(entry):
            return entry.stat().st_blocks * 512 >> 20
    raise AssertionError("there is no such file")


async def fill_and_free(guest):
    machine = guest.machine
    before = held_mib(machine)
    assert await guest.run(FILL) == "filled\n"
    most = held_mib(machine)
    assert most - before > SEEN_MIB
    used = (await machine.usage()).memory_bytes >> 20
    await guest.run("busybox rm /dev/shm/big")
    await until(lambda: most - held_mib(machine) > SEEN_MIB, "the memory does not come back")
    assert used - ((await machine.usage()).memory_bytes >> 20) > SEEN_MIB


async def test_freed_memory_goes_back_to_the_host(backend, place):
    """Of a machine that has booted or been thawed, and of one that goes on from a snapshot."""
    rootfs = make_root(place)
    make = "busybox dd if=/dev/urandom of=/dev/shm/kept bs=1M count=20 2>/dev/null; "
    look = "busybox md5sum </dev/shm/kept"
    async with Guest(backend, plan_for(place, rootfs, memory_mib=512)) as guest:
        digest = await guest.run(make + look)
        await fill_and_free(guest)
        assert await guest.run(look) == digest
        snapshot = await guest.save(place / "saved")
        saved_mib = (place / "saved" / "ram").stat().st_blocks * 512 >> 20
        assert saved_mib < TAKEN_MIB
        await fill_and_free(guest)
        assert await guest.run(look) == digest
    plan = plan_for(place, rootfs, memory_mib=512)
    async with Guest(backend, plan, snapshot) as guest:
        for _ in range(2):
            await fill_and_free(guest)
            assert await guest.run(look) == digest
