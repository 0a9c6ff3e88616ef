"""Copying sparse files with a digest of what is in them.

The digest does not depend on where a file has holes, which a copy may have elsewhere: pieces of
64 KiB are counted with their place, and those of zeros only are left out.

Source: lseek(2), SEEK_DATA; memfd_create(2), file seals in fcntl(2).
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
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Opened:
    """An open file; it is closed when this object goes.

    Args:
        descriptor: of it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False


def copy(source: int, target: int | None = None) -> str:
    """The digest of a file; it is copied on the way where there is a target.

    Args:
        source: descriptor.
        target: descriptor of an empty file; None for none.
    """
    size = os.fstat(source).st_size
    counted = hashlib.sha256(size.to_bytes(8))
    if target is not None:
        os.ftruncate(target, size)
    for at, piece in _pieces(source, size):
        counted.update(at.to_bytes(8))
        counted.update(piece)
        if target is not None:
            _write(target, piece, at)
    return counted.hexdigest()


def _pieces(source: int, size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # holes up to the end
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        at = max(at, start // _PIECE * _PIECE)
        while at < end:
            piece = os.pread(source, _PIECE, at)
            if not piece:
                return
            if piece != _ZEROS[: len(piece)]:
                yield at, piece
            at += _PIECE


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


def opened(path: Path, digest: object) -> Opened:
    """A file that is what it was.

    Raises:
        MachineFailed: it is not.
        OSError: it cannot be read.
    """
    found = Opened(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
    _compare(path, copy(found.descriptor), digest)
    return found


def fill(path: Path, target: Path, digest: object) -> None:
    """Replace what is in a file of ours by what is in another one.

    Raises:
        MachineFailed: that is not what it was.
        OSError: one of them cannot be opened.
    """
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        into = os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _compare(path, copy(source, into), digest)
        finally:
            os.close(into)
    finally:
        os.close(source)


def sealed(path: Path, digest: object) -> Opened:
    """A file in memory that says what a file says, and that nobody can change.

    Raises:
        MachineFailed: the file is not what it was.
        OSError: it cannot be read.
    """
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        memory = Opened(os.memfd_create(f"tupper-{path.name}", flags))
        _compare(path, copy(source, memory.descriptor), digest)
        fcntl.fcntl(memory.descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return memory
    finally:
        os.close(source)


def _compare(path: Path, found: str, digest: object) -> None:
    if found != digest:
        raise MachineFailed(f"the saved machine is damaged: its {path.name} is not what was saved")


def failure(error: OSError, what: str) -> TupperError:
    """What an error of the host's disk means for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfDisk(f"the host's disk is full: {what}")
    return MachineFailed(f"{what}: {error.strerror}")
