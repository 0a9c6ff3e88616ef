"""System calls that Python 3.11 does not offer: mounts and namespaces. Linux only.

They are called directly, not through ``mount``, ``nsenter`` and ``ip``: each of those costs three
to fourteen milliseconds, a system call some microseconds.

Linux keeps the mount and network namespace per *thread*. Whoever leaves one does it in a thread
that ends afterwards, see :func:`in_thread`.

Source: mount(2), umount2(2), unshare(2), setns(2) ("the calling thread").
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import functools
import os
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
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


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
    thread.start()
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
        thread.join()
        if drop is not None:
            for unwanted in made:
                drop(unwanted)
