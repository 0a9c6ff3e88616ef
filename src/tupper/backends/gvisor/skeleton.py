"""The thin layer that lies over an image's root filesystem.

The root filesystem in the store is shared and must never change, but runsc creates missing mount
points in it, and a sandbox needs its own ``/etc/hosts``. So each sandbox gets a small directory
tree with exactly these places, and the kernel shows both as one read-only filesystem (overlayfs).
The files in it are ordinary files for the guest, which may replace them, unlike bind mounts.

The image is hostile: any part of a path may be a link to anywhere. Paths are resolved here, by our
own code, inside the root; nothing of the image is opened or followed by the kernel.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from tupper.core.errors import InvalidArgument

_MAX_LINKS = 40


def resolve_inside(root: Path, guest_path: str) -> PurePosixPath:
    """Where a guest path really lies in a root filesystem, with all links in it resolved.

    Returns:
        A path relative to the root, without links, ``.`` and ``..``. It may not exist.

    Raises:
        InvalidArgument: links in a circle, or a path below a file.
    """
    todo = list(reversed(PurePosixPath(guest_path).parts))
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "/":
            done.clear()
        elif part == "..":
            del done[-1:]
        elif part != ".":
            mode, target = _look(root.joinpath(*done, part))
            if target is not None:
                links += 1
                if links > _MAX_LINKS:
                    raise InvalidArgument(f"{guest_path} has links in a circle in this image")
                todo.extend(reversed(PurePosixPath(target).parts))
                continue
            if todo and mode is not None and not stat.S_ISDIR(mode):
                raise InvalidArgument(f"{guest_path} lies below a file in this image")
            done.append(part)
    return PurePosixPath(*done)


def _look(path: Path) -> tuple[int | None, str | None]:
    """The mode of what is there and, for a link, its target. ``path`` has no links above."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None, None
    return mode, str(path.readlink()) if stat.S_ISLNK(mode) else None


def build_skeleton(
    into: Path,
    root: Path,
    *,
    directories: Iterable[str],
    files: Mapping[str, str | None],
) -> None:
    """Fill an empty directory with mount points and small files.

    Args:
        into: the empty directory.
        root: the root filesystem that it will lie over.
        directories: guest paths of directories that must exist.
        files: guest path → text; None for an empty file that something is mounted on.

    Raises:
        InvalidArgument: a path that cannot be had in this image.
    """
    _copy_owner(root, into)
    for guest_path in directories:
        _directories(into, root, resolve_inside(root, guest_path))
    for guest_path, text in files.items():
        # The name itself is replaced when it is a link (an image's resolv.conf may point anywhere).
        parent = resolve_inside(root, str(PurePosixPath(guest_path).parent))
        _directories(into, root, parent)
        target = into / parent / PurePosixPath(guest_path).name
        target.write_text(text or "")
        target.chmod(0o644 if text is not None else 0o755)


def _directories(into: Path, root: Path, relative: PurePosixPath) -> None:
    for index in range(1, len(relative.parts) + 1):
        part = PurePosixPath(*relative.parts[:index])
        made = into / part
        if not made.exists():
            made.mkdir(mode=0o755)
            _copy_owner(root / part, made)


def _copy_owner(original: Path, made: Path) -> None:
    """A directory in the upper of two layers decides on owner and mode of both."""
    try:
        status = original.lstat()
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidArgument(f"/{made.name} is not a directory in this image")
    os.chown(made, status.st_uid, status.st_gid)
    made.chmod(stat.S_IMODE(status.st_mode))


def sudo_places(root: Path) -> list[str]:
    """Where our ``sudo`` goes: wherever a shell of this image would find one first."""
    places: list[str] = []
    for directory in ("/usr/local/bin", "/usr/bin"):
        found = resolve_inside(root, directory)
        exists = (root / found).is_dir()
        if exists and (directory == "/usr/local/bin" or _look(root / found / "sudo")[0]):
            places.append(f"{directory}/sudo")
    return places
