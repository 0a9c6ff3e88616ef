"""Giving things away: descriptors to a program, files to the user that it runs as."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

_BACKLOG = 16


class Handover:
    """Descriptors that a program inherits; ours are closed when the block ends."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close all."""
        for number in self.numbers:
            os.close(number)

    def take(self, number: int) -> int:
        """Own a descriptor; the same number."""
        self.numbers.append(number)
        return number

    def open(self, path: Path, flags: int = os.O_RDONLY) -> int:
        """Open a file, which is no link."""
        return self.take(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW))

    def path(self, path: Path, flags: int = os.O_RDONLY) -> str:
        """A path for a program that wants to open a file itself."""
        return f"/proc/self/fd/{self.open(path, flags)}"

    def listen(self, directory: Path, name: str, uid: int | None) -> int:
        """A listening socket, which belongs to a user."""
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
                made.bind(f"/proc/self/fd/{place}/{name}")  # a short name: 107 bytes at most
                made.listen(_BACKLOG)
                (directory / name).chmod(0o600)
                give(directory / name, uid)
                return self.take(made.detach())
        finally:
            os.close(place)


def give(path: Path, uid: int | None) -> None:
    """Let a file of ours belong to a machine's own user."""
    if uid is not None:
        os.chown(path, uid, uid, follow_symlinks=False)
