"""An image's root filesystem as one read-only file that all its machines share.

squashfs, because every kernel has it and it keeps owners, modes, devices and extended attributes.
The file is kept beside the backend's other caches by the image's digest; when images are removed,
their files go at the next look.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path

from tupper.core.backend import Rootfs
from tupper.core.errors import OutOfDisk, ProgramFailed
from tupper.core.paths import make_private
from tupper.core.process import run

_FORMAT = "1"  # part of the name; raise it when other options are used
_TIMEOUT_S = 1800.0
# zstd at its quickest packs as fast as the disk takes it, and half the size of lz4's.
_OPTIONS = ("-comp", "zstd", "-Xcompression-level", "1", "-b", "128K")
_QUIET = ("-no-progress", "-quiet", "-noappend", "-no-recovery")


def place_of(home: Path, digest: str) -> Path:
    """Where the file of an image is, or would be."""
    return home / "roots" / f"{digest.replace(':', '-')}-{_FORMAT}.squashfs"


async def image(rootfs: Rootfs, home: Path) -> Path:
    """The file of an image; made if it is not there yet.

    Args:
        rootfs: an image of the store, unpacked.
        home: the backend's directory.

    Raises:
        ProgramNotFound: mksquashfs is missing.
        ProgramFailed: it could not read the image.
        OutOfDisk: there is no room for the file.
    """
    target = place_of(home, rootfs.digest)
    if target.exists():
        os.utime(target)
        return target
    make_private(home)
    make_private(target.parent)
    fresh = target.parent / f"new-{secrets.token_hex(8)}"
    try:
        await run(
            ["mksquashfs", str(rootfs.path), str(fresh), *_OPTIONS, *_QUIET], timeout_s=_TIMEOUT_S
        )
        fresh.chmod(0o644)  # QEMU may run as another user; the directory is private
        await asyncio.to_thread(_flush, fresh)
        fresh.replace(target)
    except ProgramFailed as error:
        if "No space left" in error.output:
            raise OutOfDisk(f"there is no room for {target}") from error
        raise
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()
    return target


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def tidy(home: Path, living: frozenset[str]) -> None:
    """Remove the files of images that are there no more.

    Args:
        home: the backend's directory.
        living: digests of the images that are there.
    """
    kept = {place_of(home, digest).name for digest in living}
    with suppress(FileNotFoundError):
        for path in (home / "roots").iterdir():
            if path.suffix == ".squashfs" and path.name not in kept:
                path.unlink(missing_ok=True)
