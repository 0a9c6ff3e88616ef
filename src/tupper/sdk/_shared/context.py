"""The files of a build: what a source of COPY names, their hash, and an archive of them.

Links are not followed unless that is asked for, so nothing outside of the context is taken by
accident.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from tupper.protocol.dockerignore import IgnoreRules, select
from tupper.sdk._shared.errors import TemplateException


def check_source(source: str) -> str:
    """Refuse sources that are outside of the context.

    Errors:
        TemplateException: absolute, or it goes up.
    """
    clean = posixpath.normpath(source.replace(os.sep, "/"))
    if Path(source).is_absolute() or clean.startswith("/"):
        raise TemplateException(
            f'Invalid source path "{source}": absolute paths are not allowed.',
            hint="give a path relative to the template's file_context_path",
        )
    if clean == ".." or clean.startswith("../"):
        raise TemplateException(
            f'Invalid source path "{source}": path escapes the context directory.',
            hint="give a path relative to the template's file_context_path",
        )
    return clean


class BuildContext:
    """A directory that COPY takes from.

    Args:
        directory: it.
        ignored: patterns as in ``.dockerignore``, which counts before them.
    """

    def __init__(self, directory: Path, ignored: Sequence[str] = ()) -> None:
        self._directory = directory
        self._ignored = tuple(ignored)
        self._listed: list[str] | None = None

    def files(self, source: str) -> list[str]:
        """What a source names, parents first, relative and with slashes.

        Errors:
            TemplateException: nothing.
        """
        if self._listed is None:
            self._listed = self._list()
        clean = check_source(source)
        found = self._listed if clean == "." else select(self._listed, clean)
        if not found:
            raise TemplateException(f"no files found in {self._directory / source}")
        return found

    def _list(self) -> list[str]:
        file = self._directory / ".dockerignore"
        text = file.read_text(errors="replace") if file.is_file() else ""
        rules = IgnoreRules("\n".join([text, *self._ignored]))
        found: list[str] = []
        pending = [""]
        while pending:
            place = pending.pop()
            for entry in os.scandir(self._directory / place):
                path = f"{place}/{entry.name}" if place else entry.name
                ignored = rules.ignores(path)
                if not ignored:
                    found.append(path)
                if entry.is_dir(follow_symlinks=False) and (not ignored or rules.has_exceptions):
                    pending.append(path)
        return sorted(found)

    def hash(self, source: str, target: str, *, follow: bool) -> str:
        """Hexadecimal SHA-256 over names, permissions and contents; times do not count."""
        total = hashlib.sha256(f"COPY {source} {target}".encode())
        for path in self.files(source):
            file = self._directory / path
            status = file.stat() if follow and file.exists() else file.lstat()
            total.update(f"\0{path}\0{status.st_mode:o}\0".encode(errors="surrogateescape"))
            if stat.S_ISLNK(status.st_mode):
                total.update(os.fsencode(file.readlink()))
            elif stat.S_ISREG(status.st_mode):
                with file.open("rb") as opened:
                    total.update(hashlib.file_digest(opened, "sha256").digest())
        return total.hexdigest()

    def archive(self, source: str, *, follow: bool, packed: bool) -> IO[bytes]:
        """A tar archive of what a source names; a temporary file at its beginning."""
        out = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            with (
                tarfile.open(fileobj=out, mode="w:gz", dereference=follow)
                if packed
                else tarfile.open(fileobj=out, mode="w", dereference=follow)
            ) as archive:
                self._add(archive, self.files(source))
            out.seek(0)
        except BaseException:
            out.close()
            raise
        return out

    def _add(self, archive: tarfile.TarFile, paths: Iterable[str]) -> None:
        for path in paths:
            info = archive.gettarinfo(str(self._directory / path), arcname=path)
            # Whose it is here means nothing there.
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.isreg():
                with (self._directory / path).open("rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)

    def read(self, path: str) -> str:
        """The text of a file; a relative path begins at the context."""
        return (self._directory / path).read_text(encoding="utf-8")
