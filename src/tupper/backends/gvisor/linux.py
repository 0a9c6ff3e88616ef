"""Loop devices and the last word of a process, without helper programs.

Source: loop(4), linux/loop.h, linux/pidfd.h. See also :mod:`tupper.core.kernel`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_PIDFD_INFO_EXIT = 8


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


@contextlib.contextmanager
def loop_device_ahead(image: Path | None) -> Generator[Callable[[], Path] | None]:
    """A :func:`loop_device` that a thread makes meanwhile: the kernel takes 4 to 13 ms for it.

    Returns:
        What waits for it and tells its name; None where there is no file.
    """
    if image is None:
        yield None
        return
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1, "loop-device") as maker:
        yield maker.submit(stack.enter_context, loop_device(image)).result


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
