"""System calls that Python 3.11 does not offer: mounts and namespaces. Linux only.

They are called directly, not through ``mount``, ``nsenter`` and ``ip``: each of those costs three
to fourteen milliseconds, a system call some microseconds.

Linux keeps the mount and network namespace per *thread*. Whoever leaves one does it in a thread
that ends afterwards, see :func:`in_thread`.

Source: mount(2), umount2(2), unshare(2), setns(2) ("the calling thread"); open_tree(2),
move_mount(2), mount_setattr(2), openat2(2), whose numbers are the same on all processors.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import functools
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8
MOUNT_ATTR_NOSYMFOLLOW = 0x200000
_MOUNT_ATTR_IDMAP = 0x100000
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_RESOLVE_NO_SYMLINKS = 4


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, path: str = "") -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)


def mount(
    source: str | Path, target: str | Path, kind: str = "", *, flags: int = 0, data: str = ""
) -> None:
    """Mount a file system, or change a mount. The arguments are those of the system call."""
    _check(
        _libc().mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        str(target),
    )


def bind(source: str | Path, target: str | Path, *, read_only: bool = False) -> None:
    """Show ``source`` at ``target`` too."""
    mount(source, target, flags=MS_BIND)
    if read_only:  # a bind mount takes its flags only when it is remounted
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: str | Path) -> bool:
    """Detach the mount at this path.

    Returns:
        Whether there was one; a link is never followed.
    """
    try:
        _check(_libc().umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW), str(target))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        raise
    return True


def unshare(flags: int) -> None:
    """Leave namespaces, with the calling thread only."""
    _check(_libc().unshare(flags))


def enter(namespace: Path, kind: int) -> None:
    """setns(2) of the calling thread into the namespace behind a file."""
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc().setns(fd, kind), str(namespace))
    finally:
        os.close(fd)


def _call(number: int, *arguments: object, path: str = "") -> int:
    result: int = _libc().syscall(ctypes.c_long(number), *arguments)
    _check(min(result, 0), path)
    return result


def open_directory(path: Path) -> int:
    """A descriptor of a directory, to which no symbolic link leads.

    Raises:
        OSError: it is none (``ENOTDIR``), or there is a link on the way (``ELOOP``).
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    name = os.fsencode(path)
    return _call(_OPENAT2, _AT_FDCWD, name, how, ctypes.c_size_t(len(how)), path=str(path))


def clone_tree(directory: int) -> int:
    """A descriptor of a copy of all mounts at and below a directory, which hang nowhere.

    They go when the last descriptor of them does.
    """
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
    return _call(_OPEN_TREE, directory, b"", ctypes.c_uint(flags))


def move_tree(tree: int, target: Path) -> None:
    """Hang mounts that hang nowhere at a place."""
    to = os.fsencode(target)
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, to, flags, path=str(target))


def restrict_tree(tree: int, attributes: int, *, user_namespace: int | None = None) -> None:
    """Take rights from mounts that hang nowhere.

    Args:
        tree: from :func:`clone_tree`.
        attributes: ``MOUNT_ATTR_…``, which are added.
        user_namespace: descriptor; owners are then shown, and stored, as this namespace maps them.

    Raises:
        OSError: ``EINVAL`` where a file system does not know how to show other owners.
    """
    if user_namespace is not None:
        attributes |= _MOUNT_ATTR_IDMAP
    change = struct.pack("QQQQ", attributes, 0, 0, user_namespace or 0)
    flags = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    _call(_MOUNT_SETATTR, tree, b"", flags, change, ctypes.c_size_t(len(change)))


async def in_thread(
    work: Callable[[], _T], *, name: str, drop: Callable[[_T], object] | None = None
) -> _T:
    """Run ``work`` in a thread that is thrown away, and wait for it, also when cancelled.

    The thread must end: it may be in other namespaces than the rest of us.

    Args:
        work: blocks.
        name: of the thread.
        drop: gets a result that comes when its caller has been cancelled, to close or undo it;
            blocks for moments only, and does not fail. None where nothing must be closed.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    made: list[_T] = []

    def body() -> None:
        try:
            made.append(work())
        except BaseException as error:  # noqa: BLE001 (handed to the waiting task)
            loop.call_soon_threadsafe(over.set_exception, error)
        else:
            loop.call_soon_threadsafe(over.set_result, None)

    thread = threading.Thread(target=body, name=name)
    _begin(thread, loop, over)
    try:
        await asyncio.shield(over)
        return made.pop()
    except asyncio.CancelledError:
        while not over.done():
            with contextlib.suppress(asyncio.CancelledError):  # once is enough
                await asyncio.wait([over])
        over.exception()  # seen; the cancellation is what counts
        raise
    finally:
        if thread.ident is not None:
            thread.join()
        if drop is not None:
            for unwanted in made:
                drop(unwanted)


def _begin(
    thread: threading.Thread, loop: asyncio.AbstractEventLoop, over: asyncio.Future[None]
) -> None:
    """Start a thread without waiting until it runs, which takes long where processors are short.

    Args:
        thread: to start.
        loop, over: where it fails if the kernel gives us no more threads.
    """

    def begin() -> None:
        try:
            thread.start()
        except RuntimeError as error:
            loop.call_soon_threadsafe(over.set_exception, error)

    loop.run_in_executor(None, begin)
