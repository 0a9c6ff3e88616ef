"""Copying sparse files with a digest of what is in them.

The digest does not depend on where a file has holes, which a copy may have elsewhere: pieces of
64 KiB are counted with their place, and those of zeros only are left out.

Source: lseek(2), SEEK_DATA; memfd_create(2), file seals in fcntl(2); sendfile(2).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from tupper.core.errors import MachineFailed, OutOfDisk, TupperError

_PIECE = 1 << 16
_ZEROS = bytes(_PIECE)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# The name of files in memory, as ``/proc/PID/fd`` shows it.
MEMORY = "tupper-ram"


class Opened:
    """An open file; it is closed when this object goes.

    Args:
        descriptor: of it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._state = self._look()
        weakref.finalize(self, os.close, descriptor).atexit = False

    def _look(self) -> tuple[int, int, int]:
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody has written to it since."""
        return self._look() == self._state


def copy(source: int, target: int | None = None) -> str:
    """The digest of a file; it is copied on the way where there is a target.

    Args:
        source: descriptor.
        target: descriptor of an empty file; None for none.
    """
    size = os.fstat(source).st_size
    counted = hashlib.sha256(size.to_bytes(8))
    if target is not None and os.fstat(target).st_size != size:
        os.ftruncate(target, size)
    for at, piece in _pieces(source, size):
        counted.update(at.to_bytes(8))
        counted.update(piece)
        if target is not None:
            _write(target, piece, at)
    return counted.hexdigest()


def _pieces(source: int, size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    for start, end in _extents(source, size):
        at = max(at, start // _PIECE * _PIECE)
        while at < end:
            piece = os.pread(source, _PIECE, at)
            if not piece:
                return
            if piece != _ZEROS[: len(piece)]:
                yield at, piece
            at += _PIECE


def _extents(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of what is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # holes up to the end
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        yield start, end


def _write(target: int, piece: bytes, at: int) -> None:
    rest = memoryview(piece)
    while rest:
        written = os.pwrite(target, rest, at)
        rest, at = rest[written:], at + written


def keep(source: int, path: Path) -> str:
    """Copy a file to a new one at a path; its digest."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(path, flags, 0o600)
    try:
        return copy(source, target)
    finally:
        os.close(target)


def opened(path: Path, digest: object, into: Opened | None = None) -> Opened:
    """A file that is what it was, copied on the way where there is a target.

    Raises:
        MachineFailed: it is not.
        OSError: it cannot be read.
    """
    found = Opened(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
    target = None if into is None else into.descriptor
    _compare(path, copy(found.descriptor, target), digest)
    return found


def emptied(path: Path) -> Opened:
    """A file of ours, with nothing in it any more.

    Raises:
        OSError: it cannot be opened.
    """
    return Opened(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC))


def fill(path: Path, target: Path, digest: object) -> None:
    """Replace what is in a file of ours by what is in another one.

    Raises:
        MachineFailed: that is not what it was.
        OSError: one of them cannot be opened.
    """
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        into = emptied(target)
        _compare(path, copy(source, into.descriptor), digest)
    finally:
        os.close(source)


def memory(size_mib: int) -> Opened:
    """An empty file in memory, whose size stays."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    made = Opened(os.memfd_create(MEMORY, flags))
    os.ftruncate(made.descriptor, size_mib << 20)
    fcntl.fcntl(made.descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return made


def pour(source: Opened, target: Opened) -> None:
    """Copy a file, which was looked at before, into an empty one of the same size."""
    size = os.fstat(source.descriptor).st_size
    for start, end in _extents(source.descriptor, size):
        at = start
        os.lseek(target.descriptor, at, os.SEEK_SET)
        while at < end:
            sent = os.sendfile(target.descriptor, source.descriptor, at, end - at)
            if not sent:
                raise OSError(errno.EIO, "it has become shorter")
            at += sent


def _compare(path: Path, found: str, digest: object) -> None:
    if found != digest:
        raise MachineFailed(f"the saved machine is damaged: its {path.name} is not what was saved")


def failure(error: OSError, what: str) -> TupperError:
    """What an error of the host's disk means for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfDisk(f"the host's disk is full: {what}")
    return MachineFailed(f"{what}: {error.strerror}")
