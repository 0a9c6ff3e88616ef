"""Making one tree of a stack of layers, of links where it can be.

The trees of the store and the layers of builds are never written to again, so the result may share
its files with them: hard links instead of the gigabyte that a copy of ``base`` would be. What the
kernel's overlay says about removed things is read here; whatever is met that it does not explain
(a link limit, a depth without end) makes :func:`flatten` take the slow way, a copy through the
overlay itself.

Trees and layers were written by guests. Every step is on a descriptor of the directory before it,
and no link is followed.

The work is done by a child, ``python -P -m tupper.engine.flat``: it has a mount namespace of its
own, so that what it mounts goes with it, and an ordinary user's is in a user namespace, where
files belong to their owners.

**Shape**: a JSON object on the child's standard input, ``{"lowers", "stage"}``; its exit status is
not 0 if it failed, and standard error says why. Standard output says why it took the slow way.

Source: Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories"; link(2);
unshare(1).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from tupper.core import overlay, userns
from tupper.core.errors import OutOfDisk, ProgramFailed
from tupper.core.log import event
from tupper.core.process import minimal_env, run, run_sync, same_code

_COPY_S = 1800.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200
# Only of use to the overlay itself; not among them: redirect, metacopy, whiteout.
_EXPLAINED = frozenset({"opaque", "impure", "origin", "uuid", "nlink"})


class _CannotLinkError(Exception):
    """The quick way is not possible."""


async def flatten(lowers: Sequence[Path], stage: Path) -> Path:
    """Make one tree of what a stack shows, ``stage / "rootfs"``.

    Raises:
        OutOfDisk: there is no room.
        ProgramFailed: with what the kernel said.
    """
    argv = [*userns.in_own_mounts(), sys.executable, "-P", "-m", "tupper.engine.flat"]
    job = json.dumps({"lowers": [str(lower) for lower in lowers], "stage": str(stage)}).encode()
    try:
        done = await run(argv, timeout_s=2 * _COPY_S, stdin=job, env=minimal_env(**same_code()))
    except ProgramFailed as error:
        if os.strerror(errno.ENOSPC) in error.output:
            raise OutOfDisk("there is no room for the root filesystem of this build") from error
        raise
    if done.text:
        event("build.copies", reason=done.text)
    return stage / "rootfs"


def main() -> None:
    """Do what standard input asks for."""
    job = json.load(sys.stdin)
    try:
        make_flat([Path(lower) for lower in job["lowers"]], Path(job["stage"]))
    except (OSError, ProgramFailed) as error:
        sys.exit(str(error))


def make_flat(lowers: Sequence[Path], stage: Path) -> Path:
    """What :func:`flatten` does, here. Blocks."""
    tree = stage / "rootfs"
    tree.mkdir(mode=0o755)
    try:
        argv = ["cp", "-a", "--link", f"{lowers[0]}/.", str(tree)]
        run_sync(argv, timeout_s=_COPY_S)
        for layer in lowers[1:]:
            _merge_layer(layer, tree)
    except (_CannotLinkError, OSError, RecursionError, ProgramFailed) as error:
        print(type(error).__name__)  # noqa: T201 - this is the protocol
        shutil.rmtree(tree)
        _copy_stack(lowers, stage)
    return tree


def _copy_stack(lowers: Sequence[Path], stage: Path) -> None:
    """Copy what a stack shows.

    ``cp`` reads through the overlay, so removed files and replaced directories need no thought of
    ours, and it follows no link.
    """
    place, tree = stage / "stack", stage / "rootfs"
    place.mkdir(mode=0o700)
    tree.mkdir(mode=0o755)
    merged = overlay.stack(place, lowers)
    run_sync(["cp", "-a", "--reflink=auto", f"{merged}/.", str(tree)], timeout_s=_COPY_S)


def _merge_layer(layer: Path, tree: Path) -> None:
    with _opened(os.fspath(layer), None) as source, _opened(os.fspath(tree), None) as target:
        _merge(source, target, 0)


@contextlib.contextmanager
def _opened(name: str, parent: int | None) -> Generator[int]:
    fd = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _merge(source: int, target: int, depth: int) -> None:
    """Lay a directory of a layer over the one in the tree."""
    if depth > _DEEPEST:
        raise _CannotLinkError
    own = overlay.own_attributes()
    marks = {name[len(own) :] for name in os.listxattr(source) if name.startswith(own)}
    if not marks <= _EXPLAINED:
        raise _CannotLinkError
    if "opaque" in marks:
        if os.getxattr(source, f"{own}opaque") != b"y":
            raise _CannotLinkError
        for name in os.listdir(target):
            _remove(name, target)
    for name in os.listdir(source):
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            _remove(name, target)
        elif stat.S_ISDIR(status.st_mode):
            _make_directory(name, target)
            with _opened(name, source) as inner, _opened(name, target) as place:
                _merge(inner, place, depth + 1)
        else:
            _remove(name, target)
            os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    _copy_facts(source, target)


def _make_directory(name: str, target: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=target, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return
        _remove(name, target)
    os.mkdir(name, 0o700, dir_fd=target)


def _remove(name: str, target: int) -> None:
    try:
        status = os.stat(name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=target)
    else:
        os.unlink(name, dir_fd=target)


def _copy_facts(source: int, target: int) -> None:
    """Owner, mode, attributes and times of a directory, by descriptors."""
    status = os.fstat(source)
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    own = overlay.own_attributes()
    wanted = {name for name in os.listxattr(source) if not name.startswith(own)}
    for name in set(os.listxattr(target)) - wanted:
        os.removexattr(target, name)
    for name in wanted:
        os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


if __name__ == "__main__":
    main()
