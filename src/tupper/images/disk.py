"""Writable layers: sparse files that hold an ext4 filesystem.

Making a filesystem takes tens of milliseconds, copying an empty sparse one takes one or two. So
one is made per size, kept in the cache, and copied, by reflink where the disk can.

**Options**: no reserved blocks (the guest is root and could use them). Inode tables are marked as
zeroed, which holes are: otherwise the kernel would write zeros into them after the mount. A
journal of 4 MiB, so that a power cut leaves a filesystem that mounts; it costs 8 KiB on disk.

Source: mke2fs(8), ext4(5), ioctl_ficlone(2); measurements in docs/design/images.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
from pathlib import Path

from tupper.core.errors import InvalidArgument, OutOfDisk, ProgramNotFound, StoreError
from tupper.core.paths import find_paths, make_private
from tupper.core.process import run

MIN_MIB = 16
MAX_MIB = 16 * 1024 * 1024 - 1
_MKFS_TIMEOUT_S = 120.0
_PIECE = 1 << 20
_FICLONE = 0x40049409
_RECIPE = "2"  # part of the cached file's name; raise it when the options change


async def make_disk(path: Path, size_mib: int, *, cache_dir: Path | None = None) -> None:
    """Make a sparse file with an empty ext4 filesystem.

    Args:
        path: the file; it must not exist.
        size_mib: its size in MiB.
        cache_dir: where empty filesystems are kept; the user's cache if None.

    Raises:
        InvalidArgument: a size that is not possible.
        OutOfDisk: not even the metadata fit.
        StoreError: the disk cannot be written for another reason.
        ProgramNotFound: ``mkfs.ext4`` is missing.
    """
    if not MIN_MIB <= size_mib <= MAX_MIB:
        raise InvalidArgument(f"a disk of {size_mib} MiB; {MIN_MIB} to {MAX_MIB} MiB are possible")
    cache = make_private((cache_dir or find_paths().cache) / "disks")
    master = cache / f"ext4-{_RECIPE}-{size_mib}"
    try:
        if not await asyncio.to_thread(master.is_file):
            await _make_master(master, size_mib)
        try:
            await asyncio.to_thread(copy_sparse, master, path)
        except FileNotFoundError:  # the cache was emptied meanwhile
            await _make_master(master, size_mib)
            await asyncio.to_thread(copy_sparse, master, path)
    except OSError as error:
        kind = OutOfDisk if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        raise kind(f"cannot make a disk of {size_mib} MiB: {error.strerror}") from error


async def _make_master(master: Path, size_mib: int) -> None:
    temporary = master.with_name(f".{master.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size_mib * 2**20)
        finally:
            os.close(fd)
        await run(mkfs_command(temporary, size_mib), timeout_s=_MKFS_TIMEOUT_S)
        temporary.replace(master)
    except ProgramNotFound as error:
        raise ProgramNotFound(
            "mkfs.ext4 is not installed", hint="run: tupper setup (or: apt install e2fsprogs)"
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def mkfs_command(path: Path, size_mib: int) -> list[str]:
    """The command that makes the filesystem."""
    extended = "lazy_itable_init=0,lazy_journal_init=1,discard,root_owner=0:0"
    # "discard" makes holes, and mke2fs knows then that it need not write zeros.
    features = "^resize_inode,^metadata_csum_seed"
    journal = ["-J", "size=4"] if size_mib >= 64 else ["-O", "^has_journal"]
    argv = ["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-i", "16384", "-I", "256"]
    return [*argv, "-E", extended, "-O", features, *journal, str(path)]


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file with its holes; as a reflink if the filesystem has them."""
    with source.open("rb", buffering=0) as read:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        write = os.open(target, flags, 0o600)
        try:
            try:
                fcntl.ioctl(write, _FICLONE, read.fileno())
            except OSError:
                _copy_pieces(read.fileno(), write)
        except BaseException:
            target.unlink()
            raise
        finally:
            os.close(write)


def _copy_pieces(read: int, write: int) -> None:
    size = os.fstat(read).st_size
    os.ftruncate(write, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(read, at, os.SEEK_DATA)
        except OSError:
            return  # ENXIO: holes up to the end
        at = os.lseek(read, start, os.SEEK_HOLE)
        left = at - start
        while left:
            left -= _copy_piece(read, write, at - left, left)


def _copy_piece(read: int, write: int, at: int, left: int) -> int:
    """Copy some bytes at the same place in both files; returns how many."""
    try:
        return os.copy_file_range(read, write, left, offset_src=at, offset_dst=at)
    except OSError as error:
        # The cache may lie on another file system than the data, which the call refuses.
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return os.pwrite(write, os.pread(read, min(left, _PIECE), at), at)
