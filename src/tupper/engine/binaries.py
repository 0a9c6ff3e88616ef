"""Copies of the agent's binary, kept for as long as some machine, also a saved one, runs it.

gVisor reads a program's pages from its file when they are needed, after a restore too. So the file
that a machine was started with must stay the same, byte for byte, whatever an upgrade of tupper
does to its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from tupper.core.errors import NotFound
from tupper.core.paths import make_private


class Binaries:
    """The copies of one engine.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[tuple[str, int, int], str] = {}

    def keep(self, binary: Path) -> tuple[str, Path]:
        """The digest of a binary, and a copy of it that stays."""
        status = binary.stat()
        key = (str(binary), status.st_mtime_ns, status.st_size)
        digest = self._known.get(key)
        if digest is None:
            digest = hashlib.sha256(binary.read_bytes()).hexdigest()[:32]
            self._copy(binary, digest)
            self._known[key] = digest
        return digest, self._directory / digest

    def find(self, digest: str) -> Path:
        """The copy of a digest.

        Raises:
            NotFound: there is none.
        """
        path = self._directory / digest
        if not digest or not path.is_file():
            raise NotFound(
                "the agent that runs in the saved sandbox is gone from the data directory"
            )
        return path

    def sweep(self, keep: Collection[str]) -> None:
        """Remove all but these. Only while nothing is started."""
        for path in self._directory.glob("*"):
            if path.name not in keep:
                path.unlink(missing_ok=True)

    def _copy(self, binary: Path, digest: str) -> None:
        target = self._directory / digest
        if target.is_file():
            return
        make_private(self._directory)
        fresh = self._directory / f"{digest}.{os.getpid()}"
        shutil.copyfile(binary, fresh)
        fresh.chmod(0o755)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(target)
