"""Overlay mounts for builds, and taking down whatever is mounted below a directory of ours.

Source: Documentation/filesystems/overlayfs.rst; proc_pid_mountinfo(5); mount(8), umount(8).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from tupper.core.errors import Unsupported
from tupper.core.process import run
from tupper.engine.place import unescape

_TIMEOUT_S = 30.0
_COPY_S = 1800.0


async def mount_overlay(place: Path, lowers: Sequence[Path]) -> Path:
    """Stack directories and put a new one for writes on top.

    Args:
        place: an empty directory on the same disk as the result shall be; gets ``upper``, ``work``
            and ``merged``.
        lowers: the lowest first.

    Returns:
        The merged directory.

    Raises:
        Unsupported: this user cannot mount.
    """
    if os.geteuid() != 0:
        raise Unsupported("this user", "builds", "stacking directories needs root")
    for name in ("upper", "work", "merged"):
        (place / name).mkdir(mode=0o755)
    # Short relative names: the kernel takes one page of options.
    for number, lower in enumerate(lowers):
        (place / str(number)).symlink_to(lower)
    stack = ":".join(str(number) for number in reversed(range(len(lowers))))
    options = f"lowerdir={stack},upperdir=upper,workdir=work,redirect_dir=off,metacopy=off"
    argv = ["mount", "-t", "overlay", "tupper-build", "-o", options, "merged"]
    await run(argv, timeout_s=_TIMEOUT_S, cwd=place)
    return place / "merged"


def mounts_below(directory: Path, mountinfo: str) -> list[Path]:
    """Mount points at or below a directory, the deepest and latest first."""
    found: list[Path] = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            point = Path(unescape(fields[4]))
            if point.is_relative_to(directory):
                found.append(point)
    found.reverse()  # of two mounts on one place the later one is on top
    return sorted(found, key=lambda path: -len(path.parts))


def _find_below(directory: Path) -> list[Path]:
    try:
        return mounts_below(directory.resolve(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return []


async def unmount_below(directory: Path) -> None:
    """Unmount everything at or below a directory. Idempotent."""
    for point in await asyncio.to_thread(_find_below, directory):
        await run(["umount", "-l", str(point)], timeout_s=_TIMEOUT_S, check=False)


async def copy_stack(lowers: Sequence[Path], stage: Path) -> Path:
    """Copy what a stack shows into one tree, ``stage / "rootfs"``.

    ``cp`` reads through the overlay, so removed files and replaced directories need no thought of
    ours, and it follows no link.
    """
    place, tree = stage / "stack", stage / "rootfs"
    place.mkdir(mode=0o700)
    try:
        merged = await mount_overlay(place, lowers)
        tree.mkdir(mode=0o755)
        argv = ["cp", "-a", "--reflink=auto", f"{merged}/.", str(tree)]
        await run(argv, timeout_s=_COPY_S)
    finally:
        await unmount_below(place)
    return tree
