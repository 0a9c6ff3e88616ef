"""Which ``runsc`` there is: the user's, the system's, or tupper's private copy."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import TupperError
from tupper.core.process import run

_VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A runsc.

    Args:
        path: where it is.
        origin: ``settings``, ``PATH`` or ``private``.
        digest: SHA-256 of the file, hexadecimal.
        version: as it says, such as ``release-20240729.0``; empty if it does not run.
    """

    path: Path
    origin: str
    digest: str
    version: str


def private_copy(home: Path) -> Path:
    """Where tupper's own copy is kept."""
    return home / "runsc"


def candidates(home: Path, setting: str, search_path: str | None = None) -> list[tuple[Path, str]]:
    """Existing programs with their origin, the one to prefer first.

    A program from the settings is the only one then: what the user chose is never replaced.
    """
    if setting:
        return [(Path(setting), "settings")]
    found = shutil.which("runsc", path=search_path or _search_path())
    out = [(Path(found), "PATH")] if found else []
    if private_copy(home).is_file():
        out.append((private_copy(home), "private"))
    return out


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


async def look_at(path: Path, origin: str) -> Program:
    """Hash a program and ask it for its version.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        said = await run([str(path), "--version"], timeout_s=_VERSION_TIMEOUT_S)
    except TupperError:
        return Program(path, origin, digest, "")
    return Program(path, origin, digest, parse_version(said.text))


def parse_version(text: str) -> str:
    """``release-20240729.0`` from ``runsc version release-20240729.0``; empty if it is not so."""
    words = text.split("\n", 1)[0].split()
    return words[2] if words[:2] == ["runsc", "version"] and len(words) == 3 else ""
