"""Reading a directory of this machine as a tar stream."""

from __future__ import annotations

import fnmatch
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tupper.sdk._shared.errors import InvalidArgumentException

PIECE = 1024 * 1024
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class TreeReader:
    """A directory as a tar stream, made as it is read.

    A file that shrinks meanwhile is filled with zeros, one that grows is cut, one that vanishes or
    cannot be read is an error that names it.

    Args:
        root: the directory.
        exclude: names or patterns that are left out at every level.
    """

    def __init__(self, root: str | os.PathLike[str], exclude: Sequence[str] = ()) -> None:
        self._root = Path(root)
        if not self._root.is_dir():
            raise InvalidArgumentException(f"{self._root} is not a directory on this host")
        self._exclude = tuple(exclude)
        self._pieces = self._stream()

    def read(self) -> bytes:
        """The next bytes; empty at the end."""
        return next(self._pieces, b"")

    def _stream(self) -> Iterator[bytes]:
        buffer = bytearray()
        for piece in self._walk(self._root, ""):
            buffer += piece
            if len(buffer) >= PIECE:
                yield bytes(buffer)
                buffer.clear()
        yield bytes(buffer) + bytes(2 * tarfile.BLOCKSIZE)

    def _walk(self, directory: Path, prefix: str) -> Iterator[bytes]:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in self._exclude):
                continue
            status = entry.stat(follow_symlinks=False)
            name = prefix + entry.name
            if stat.S_ISDIR(status.st_mode):
                yield _head(name + "/", status, tarfile.DIRTYPE)
                yield from self._walk(Path(entry.path), name + "/")
            elif stat.S_ISLNK(status.st_mode):
                yield _head(name, status, tarfile.SYMTYPE, os.readlink(entry.path))  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                yield from _content(entry.path, name)


def _head(name: str, status: os.stat_result, kind: bytes, link: str = "", size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = stat.S_IMODE(status.st_mode)
    info.mtime = int(status.st_mtime)
    info.size = size
    info.linkname = link
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(path: str, name: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW)
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(fd)
        yield _head(name, status, tarfile.REGTYPE, size=status.st_size)
        left = status.st_size
        while left:
            piece = file.read(min(PIECE, left)) or bytes(min(PIECE, left))
            left -= len(piece)
            yield piece
        yield bytes(-status.st_size % tarfile.BLOCKSIZE)
