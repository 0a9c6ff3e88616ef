"""Stacking directories with overlayfs, for builds of templates.

A stack is mounted where it is used, in namespaces that end with the use: in those of a build's
machine, or of the process that copies a stack. So nobody has to unmount it, whatever was killed.

In a user namespace the kernel keeps what it notes about removed and replaced things in attributes
of the kind ``user.`` instead of ``trusted.``. Either way it lets nobody write such attributes, or
make what it takes for a removed file, through the mount: what a guest has written is what it says.

Source: Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories", "User xattr";
user_namespaces(7), ``uid_map``.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path

from tupper.core import kernel

# Within a layer's directory.
FILES = "files"
_MERGED = "merged"
_PLACEHOLDER = ".tupper-build"
_ALL_IDS = ["0", "0", "4294967295"]
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@functools.cache
def own_attributes() -> str:
    """What the names of the kernel's own attributes begin with, for who mounts where we are."""
    try:
        is_first = Path("/proc/self/uid_map").read_text().split() == _ALL_IDS
    except OSError:
        is_first = True
    return "trusted.overlay." if is_first else "user.overlay."


def merged(place: Path) -> Path:
    """Where :func:`stack` shows the whole."""
    return place / _MERGED


def stack(place: Path, lowers: Sequence[Path]) -> Path:
    """Stack directories, in the mount namespace of the calling thread, with a new one on top.

    Changes the working directory: only for a thread or a process that has its own.

    Args:
        place: an empty directory; the new layer is ``place / "layer" / FILES``.
        lowers: the lowest first.

    Returns:
        The merged directory.

    Raises:
        OSError: the kernel refuses.
    """
    for name in ("layer", f"layer/{FILES}", "work", _MERGED):
        (place / name).mkdir(exist_ok=True)
        (place / name).chmod(0o755)
    # Short relative names: the kernel takes one page of options.
    for number, lower in enumerate(lowers):
        (place / str(number)).symlink_to(lower)
    os.chdir(place)
    names = ":".join(str(number) for number in reversed(range(len(lowers))))
    # Not "off", by which some kernels mean "follow", which they refuse in a user namespace.
    options = "redirect_dir=nofollow,metacopy=off"
    if own_attributes().startswith("user."):
        options += ",userxattr"
    options = f"lowerdir={names},upperdir=layer/{FILES},workdir=work,{options}"
    kernel.mount("tupper-build", _MERGED, "overlay", data=options)
    return merged(place)


def keep_tmp(root: Path, *, undo: bool = False) -> None:
    """Put a directory into /tmp, or take it away again.

    gVisor lays a file system in memory over a /tmp that is empty, and a build's files there would
    be gone after its step. The tree may be hostile: no link in it is followed.
    """
    with contextlib.suppress(OSError):
        top = os.open(root, _DIRECTORY)
        try:
            tmp = os.open("tmp", _DIRECTORY, dir_fd=top)
            try:
                change = os.rmdir if undo else os.mkdir
                change(_PLACEHOLDER, dir_fd=tmp)
            finally:
                os.close(tmp)
        finally:
            os.close(top)
