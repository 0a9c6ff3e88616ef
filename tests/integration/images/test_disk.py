"""Writable layers: sparse, sound, all theirs."""

from __future__ import annotations

import asyncio
import errno
import re
import subprocess

import pytest

from tupper.core.errors import InvalidArgument, StoreError
from tupper.images import make_disk


@pytest.mark.parametrize("size_mib", [16, 64, 10240, 500_000])
async def test_a_disk_is_sparse_and_sound(tmp_path, size_mib):
    disk = tmp_path / "disk"
    await make_disk(disk, size_mib, cache_dir=tmp_path / "cache")
    status = disk.stat()
    assert status.st_size == size_mib * 2**20
    assert status.st_blocks * 512 < max(2**20, status.st_size // 2000)
    assert status.st_mode & 0o777 == 0o600
    subprocess.run(["/sbin/e2fsck", "-fn", disk], check=True, capture_output=True)
    said = subprocess.run(
        ["/sbin/dumpe2fs", disk], check=True, capture_output=True, text=True
    ).stdout
    fields = {
        line.split(":")[0]: line.split(":")[1].strip()
        for line in said.splitlines()
        if line.count(":") == 1
    }
    assert fields["Reserved block count"] == "0"
    groups = len(re.findall(r"^Group \d+:", said, re.MULTILINE))
    # Otherwise the kernel writes zeros into the inode tables after the mount.
    assert said.count("ITABLE_ZEROED") == groups


async def test_disks_are_made_side_by_side_and_survive_a_lost_cache(tmp_path):
    cache = tmp_path / "cache"
    await asyncio.gather(*(make_disk(tmp_path / f"d{n}", 64, cache_dir=cache) for n in range(12)))
    contents = {(tmp_path / f"d{n}").read_bytes() for n in range(12)}
    assert len(contents) <= 12
    for file in (cache / "disks").iterdir():
        file.unlink()
    await make_disk(tmp_path / "again", 64, cache_dir=cache)
    assert len(list((cache / "disks").iterdir())) == 1


async def test_cache_on_another_file_system(tmp_path, monkeypatch):
    """copy_file_range(2) refuses that, and a cache in memory or on another disk is usual."""
    refused = []

    def refuse(*_args, **_options):
        refused.append(True)
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.copy_file_range", refuse)
    disk = tmp_path / "disk"
    await make_disk(disk, 256, cache_dir=tmp_path / "cache")
    assert refused
    subprocess.run(["/sbin/e2fsck", "-fn", disk], check=True, capture_output=True)
    assert disk.stat().st_blocks * 512 < 2**20
    (master,) = (tmp_path / "cache" / "disks").iterdir()
    assert disk.read_bytes() == master.read_bytes()


async def test_disk_that_cannot_be_made_is_not_called_full(tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        await make_disk(tmp_path / "nowhere" / "disk", 64, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("size_mib", [0, -1, 15, 2**40])
async def test_impossible_sizes(tmp_path, size_mib):
    with pytest.raises(InvalidArgument, match="MiB"):
        await make_disk(tmp_path / "disk", size_mib, cache_dir=tmp_path / "cache")


async def test_nothing_that_exists_is_overwritten(tmp_path):
    disk = tmp_path / "disk"
    disk.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        await make_disk(disk, 64, cache_dir=tmp_path / "cache")
    assert not (tmp_path / "elsewhere").exists()
