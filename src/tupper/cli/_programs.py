"""The programs of this host that tupper runs, and the packages that bring them.

Only Debian and Ubuntu are installed on; elsewhere the error names what is missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from tupper.core.errors import ProgramFailed, ProgramNotFound
from tupper.core.process import downloading_env, minimal_env, run

_INSTALL_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program of this host.

    Args:
        name: on PATH.
        package: of Debian and Ubuntu.
        purpose: what tupper does with it.
        ordinary_only: whether root does without it.
    """

    name: str
    package: str
    purpose: str
    ordinary_only: bool = False


PROGRAMS = (
    Program("skopeo", "skopeo", "images"),
    Program("mmdebstrap", "mmdebstrap", "templates"),
    Program("gpgv", "gpgv", "templates"),
    Program("xz", "xz-utils", "templates"),
    Program("nft", "nftables", "networks"),
    Program("ip", "iproute2", "networks"),
    Program("mkfs.ext4", "e2fsprogs", "disks"),
    Program("losetup", "mount", "disks"),
    Program("nsenter", "util-linux", "networks"),
    Program("newuidmap", "uidmap", "sandboxes of an ordinary user", ordinary_only=True),
    Program("pasta", "passt", "networks of an ordinary user", ordinary_only=True),
)


def is_root() -> bool:
    """Whether we may do everything on this host."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def find_missing(*, ordinary: bool) -> list[Program]:
    """The programs that are not on PATH, nor in the directories of administrators."""
    path = minimal_env()["PATH"]
    return [
        program
        for program in PROGRAMS
        if (ordinary or not program.ordinary_only) and shutil.which(program.name, path=path) is None
    ]


async def install(missing: list[Program], say: Callable[[str], None]) -> None:
    """Install the packages of these programs, as root or with ``sudo``.

    Errors:
        ProgramNotFound: this is not a host with apt, or we may not install; the hint is the
            command that somebody with the right to do it can paste.
        ProgramFailed: apt refused.
    """
    packages = sorted({program.package for program in missing})
    names = ", ".join(program.name for program in missing)
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise ProgramNotFound(
            f"not installed: {names}", hint="install them with your system's tools"
        )
    prefix = [] if is_root() else ["sudo", "-n"]
    if prefix and shutil.which("sudo") is None:
        raise ProgramNotFound(f"not installed: {names}", hint=f"as root: {command}")
    say(f"packages: installing {' '.join(packages)}")
    env = downloading_env(DEBIAN_FRONTEND="noninteractive")
    try:
        await run([*prefix, "apt-get", "update", "-qq"], timeout_s=_INSTALL_TIMEOUT_S, env=env)
        options = ["-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]
        await run(
            [
                *prefix,
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                *options,
                *packages,
            ],
            timeout_s=_INSTALL_TIMEOUT_S,
            env=env,
        )
    except ProgramFailed as error:
        raise ProgramFailed(
            f"cannot install {names}: {error.message}",
            returncode=error.returncode,
            output=error.output,
            hint=f"as root: {command}",
        ) from error
