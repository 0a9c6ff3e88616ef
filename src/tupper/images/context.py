"""The files of a build context on disk: listed, selected, hashed.

The Dockerfile is the user's, the context too; links in it are never followed, so a build cannot
take in what lies outside of the context.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tupper.core.errors import TemplateError
from tupper.protocol.dockerignore import IgnoreRules, select


def list_context(directory: Path, *, dockerfile: str = "Dockerfile") -> list[str]:
    """All paths of a context, relative and with slashes, sorted, without what is ignored.

    Args:
        directory: of the context.
        dockerfile: its name; ``NAME.dockerignore`` beside it wins over ``.dockerignore``.

    Raises:
        TemplateError: the directory cannot be read.
    """
    rules = _read_rules(directory, dockerfile)
    found: list[str] = []
    pending = [""]
    while pending:
        place = pending.pop()
        try:
            entries = sorted(os.scandir(directory / place), key=lambda entry: entry.name)
        except OSError as error:
            raise TemplateError(f"cannot read {place or directory}: {error.strerror}") from error
        for entry in entries:
            path = f"{place}/{entry.name}" if place else entry.name
            ignored = rules.ignores(path)
            if not ignored:
                found.append(path)
            if entry.is_dir(follow_symlinks=False) and (not ignored or rules.has_exceptions):
                pending.append(path)
    return sorted(found)


def select_files(directory: Path, paths: list[str], source: str) -> list[str]:
    """What one source of COPY names.

    Raises:
        TemplateError: nothing.
    """
    chosen = select(paths, source)
    if not chosen and source.strip("./"):
        raise TemplateError(
            f"COPY {source}: no such file in {directory.name}, or .dockerignore leaves it out"
        )
    return chosen


def hash_files(directory: Path, paths: Iterable[str]) -> str:
    """``sha256:…`` over names, kinds, permissions and contents; times do not count."""
    total = hashlib.sha256()
    for path in paths:
        file = directory / path
        status = file.lstat()
        kind = stat.S_IFMT(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(file.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = _hash_file(file)
        else:
            content = b""
        mode = 0 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
        for part in (os.fsencode(path), b"%o %o" % (kind, mode), content):
            total.update(b"%d:" % len(part) + part)
    return f"sha256:{total.hexdigest()}"


def _hash_file(file: Path) -> bytes:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _read_rules(directory: Path, dockerfile: str) -> IgnoreRules:
    for name in (f"{dockerfile}.dockerignore", ".dockerignore"):
        file = directory / name
        if file.is_file():
            return IgnoreRules(file.read_text(errors="replace"))
    return IgnoreRules("")
