"""The few system calls that Python 3.11 does not offer: mounts, namespaces, loop devices.

They are called directly, not through ``mount``, ``losetup``, ``nsenter`` and ``ip``: each of those
costs three to fourteen milliseconds, a system call some microseconds.

Source: mount(2), umount2(2), unshare(2), setns(2), loop(4), linux/loop.h, linux/pidfd.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Generator
from pathlib import Path

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
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_PIDFD_INFO_EXIT = 8

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, path: str = "") -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)


def mount(
    source: str | Path, target: str | Path, kind: str = "", *, flags: int = 0, data: str = ""
) -> None:
    """Mount a file system, or change a mount. The arguments are those of the system call."""
    _check(
        _libc.mount(
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
        _check(_libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW), str(target))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        raise
    return True


def unshare(flags: int) -> None:
    """Leave namespaces, with the calling thread only."""
    _check(_libc.unshare(flags))


def enter(namespace: Path, kind: int) -> None:
    """setns(2) of the calling thread into the namespace behind a file."""
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, kind), str(namespace))
    finally:
        os.close(fd)


@contextlib.contextmanager
def loop_device(image: Path) -> Generator[Path]:
    """A loop device for a file. It goes by itself with the last mount or descriptor of it.

    Raises:
        OSError: no device is free, or the kernel has none.
    """
    with contextlib.ExitStack() as stack:
        backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, backing)
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, control)
        config = bytearray(_loop_config(backing))
        for _ in range(64):  # somebody else may take the free one first
            device = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, _LOOP_CONFIGURE, config)
            except OSError as error:
                os.close(fd)
                if error.errno == errno.EBUSY:
                    continue
                raise
            stack.callback(os.close, fd)
            yield device
            return
        raise OSError(errno.EBUSY, "no loop device stays free", str(image))


def _loop_config(backing: int) -> bytes:
    """``struct loop_config``: descriptor, block size, ``loop_info64``, reserved."""
    info = struct.pack("<5Q4I64s64s32s2Q", *(0,) * 8, _LO_FLAGS_AUTOCLEAR, b"", b"", b"", 0, 0)
    return struct.pack("<2I", backing, 0) + info + bytes(64)


def exit_status(pid: int, pidfd: int) -> int | None:
    """The wait status of a process that has ended and is not our child; None if unknown.

    Known while it is a zombie (field 52 of ``/proc/PID/stat``, for the privileged), and after
    that from Linux 6.15 on.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        if fields[0] == "Z":
            return int(fields[49])
    info = bytearray(struct.pack("<Q", _PIDFD_INFO_EXIT) + bytes(56))
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
        mask = int.from_bytes(info[:8], "little")
        if mask & _PIDFD_INFO_EXIT:
            return int.from_bytes(info[60:64], "little", signed=True)
    return None
