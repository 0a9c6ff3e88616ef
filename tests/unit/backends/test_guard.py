"""What gVisor's processes use is read from their descriptors; this process stands for one."""

import asyncio
import os

from tupper.backends.gvisor import guard
from tupper.core.lifecycle import EndReason


def test_memory_and_disk_are_told_apart_and_counted_once(tmp_path):
    before = guard.measure(os.getpid(), tmp_path)
    memory = os.memfd_create("runsc-memory")
    again = os.dup(memory)
    other = os.memfd_create("something")
    disk = os.open(tmp_path / "store", os.O_RDWR | os.O_CREAT)
    os.unlink(tmp_path / "store")
    try:
        os.ftruncate(memory, 1 << 40)
        os.write(memory, bytes(1 << 20))
        os.write(other, bytes(1 << 20))
        os.write(disk, os.urandom(1 << 16))
        os.fsync(disk)
        use = guard.measure(os.getpid(), tmp_path)
    finally:
        for fd in (memory, again, other, disk):
            os.close(fd)
    assert before == guard.Use()
    assert 1 << 20 <= use.memory_bytes < 1 << 22
    assert 1 << 16 <= use.disk_bytes < 1 << 20


def test_what_is_gone_uses_nothing(tmp_path):
    assert guard.measure(1 << 30, tmp_path) == guard.Use()


async def test_the_first_that_goes_over_is_named(tmp_path):
    fd = os.memfd_create("runsc-memory")
    try:
        os.write(fd, bytes(1 << 20))
        watching = guard.watch(os.getpid(), tmp_path, memory_bytes=1 << 16, disk_bytes=1 << 16)
        assert await asyncio.wait_for(watching, 30) is EndReason.OUT_OF_MEMORY
    finally:
        os.close(fd)
