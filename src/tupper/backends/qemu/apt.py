"""Fetching packages of the machine's own distribution, without installing them.

apt does it, with the machine's sources, proxies and archive keys. First with the lists that the
machine has; where these are missing or too old, with fresh ones in a private directory, so that
the system's own stay as they are and no privilege is needed.

Source: apt-get(8) ``download``, apt-cache(8) ``depends``, apt.conf(5).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tupper.core.errors import ProgramFailed, ProgramNotFound, TupperError
from tupper.core.process import downloading_env, run

_TIMEOUT_S = 900.0


class Apt:
    """The packages that this machine's apt knows.

    Args:
        place: an empty directory of ours, where packages end up.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._options: list[str] = ["-oAPT::Sandbox::User=root"]

    async def refresh(self) -> None:
        """Fetch the lists of all sources into a private place."""
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self.place / name).mkdir(parents=True, exist_ok=True)
        (self.place / "status").touch()
        self._options += [
            *(f"-oDir::State={self.place}/state", f"-oDir::State::status={self.place}/status"),
            *(f"-oDir::Cache={self.place}/cache", "-oAcquire::Languages=none"),
            *("-oAcquire::http::Timeout=20", "-oAcquire::https::Timeout=20"),
        ]
        # One source that cannot be reached does not matter unless it is the one that we need.
        await self._run("apt-get", "-qq", "update", check=False)

    async def dependency(self, package: str, pattern: str) -> str:
        """The first package that one depends on and whose whole name fits; empty if none does.

        Raises:
            ProgramFailed: apt does not know the package.
        """
        said = await self._run("apt-cache", "depends", "--important", package)
        for line in said.splitlines():
            found = re.fullmatch(r"\s*\|?Depends: (\S+)", line)
            if found and re.fullmatch(pattern, found[1]):
                return found[1]
        return ""

    async def download(self, package: str) -> Path:
        """Fetch a package; where its file is.

        Raises:
            ProgramFailed: it cannot be had.
        """
        await self._run("apt-get", "-qq", "download", package)
        files = sorted(self.place.glob(f"{package}_*.deb"))
        if not files:
            raise ProgramFailed(f"apt-get did not bring {package}")
        return files[-1]

    async def _run(self, program: str, *argv: str, check: bool = True) -> str:
        done = await run(
            [program, *self._options, *argv],
            timeout_s=_TIMEOUT_S,
            env=downloading_env(),
            cwd=self.place,
            check=check,
        )
        return done.text


async def fetch(place: Path, meta: Sequence[str], pattern: str) -> tuple[Apt, str]:
    """Find the package that the first known one of several meta packages stands for.

    Args:
        place: an empty directory.
        meta: names, the preferred first.
        pattern: what the package's name must be like.

    Returns:
        apt in the state in which it knew the package, and the package's name.

    Raises:
        ProgramFailed: none is known.
        ProgramNotFound: there is no apt.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramNotFound("this machine has no apt: name a kernel in the settings of qemu")
    apt = Apt(place)
    failure: TupperError = ProgramFailed(f"apt knows none of {', '.join(meta)}")
    for fresh in (False, True):
        if fresh:
            await apt.refresh()
        for name in meta:
            try:
                found = await apt.dependency(name, pattern)
            except ProgramFailed as error:
                failure = error
                continue
            if found:
                return apt, found
    raise failure


async def unpack(package: Path, into: Path) -> None:
    """Unpack the files of a package."""
    await run(["dpkg-deb", "-x", str(package), str(into)], timeout_s=_TIMEOUT_S)


async def version_of(package: Path) -> str:
    """The version of a package's file."""
    done = await run(["dpkg-deb", "-f", str(package), "Version"], timeout_s=_TIMEOUT_S)
    return done.text
