"""Which QEMU there is, and whether it is new enough."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import TupperError
from tupper.core.process import minimal_env, run

# The first whose microvm and whose migration of shared memory are known to work.
OLDEST = (7, 2)
PACKAGES = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}
_VERSION_TIMEOUT_S = 10.0
_VERSION = re.compile(r"version (\d+)\.(\d+)(?:\.(\d+))?(?: \(([^)]{1,100})\))?")


@dataclass(frozen=True, slots=True)
class Program:
    """A QEMU.

    Args:
        path: where it is.
        version: as it says, with the packager's own, such as ``7.2.22 (Debian 1:7.2+dfsg-7)``;
            empty if it does not run.
        numbers: the first two of the version.
        size, changed_ns: of the file, by which it is known again.
    """

    path: Path
    version: str
    numbers: tuple[int, int]
    size: int
    changed_ns: int

    @property
    def key(self) -> str:
        """Another program has another one."""
        return f"{self.path} {self.version} {self.size} {self.changed_ns}"


def find(setting: str, *, machine: str = platform.machine()) -> Path | None:
    """The program of the settings, or the one on the path.

    Args:
        setting: what the user chose; empty for nothing.
        machine: as ``uname -m``; only a guest of the same kind is of use.
    """
    if setting:
        return Path(setting)
    found = shutil.which(f"qemu-system-{machine}", path=minimal_env()["PATH"])
    return Path(found) if found else None


async def look_at(path: Path) -> Program:
    """Ask a program for its version.

    Raises:
        OSError: there is none.
    """
    status = await asyncio.to_thread(path.stat)
    try:
        said = (await run([str(path), "--version"], timeout_s=_VERSION_TIMEOUT_S)).text
    except TupperError:
        said = ""
    version, numbers = parse_version(said)
    return Program(path, version, numbers, status.st_size, status.st_mtime_ns)


def parse_version(text: str) -> tuple[str, tuple[int, int]]:
    """Version and its first two numbers, from what ``--version`` says."""
    match = _VERSION.search(text.split("\n", 1)[0])
    if match is None:
        return "", (0, 0)
    major, minor, micro, package = match.groups()
    version = f"{major}.{minor}.{micro or 0}" + (f" ({package})" if package else "")
    return version, (int(major), int(minor))
