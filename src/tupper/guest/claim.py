"""Taking an agent's socket out of the guest's reach.

The agent makes its socket in a directory that the guest can write to. Guest root can put anything
there at any moment: a link to a socket of the host, a file, another socket, and swap them while we
look. So the engine does not look and then use: it first *moves* whatever is there into a private
directory (a rename never follows a link), and judges what it got where nobody else can touch it.
From then on all connections go to the private path; what the guest does in the shared directory
no longer matters.

Source: rename(2), unix(7): a listening socket is reached through whichever name its inode has.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from pathlib import Path

from tupper.core.errors import DeadlineExceeded, GuestMisbehaved

_PAUSE_S = 0.002
_LONG_PAUSE_S = 0.02
_SOON_S = 3.0


async def claim_socket(socket_path: Path, private_path: Path, timeout_s: float) -> None:
    """Wait for a socket in a directory shared with a guest, and move it to a private path.

    Where the two are on different file systems (the shared directory is a small one of its own) the
    socket is kept beside the shared directory, and ``private_path`` becomes a link to it.

    Args:
        socket_path: where the agent listens; its directory is the guest's to write.
        private_path: where it goes. Replaced if it exists.
        timeout_s: seconds to wait for it to appear.

    Errors:
        DeadlineExceeded: nothing appeared.
        GuestMisbehaved: what appeared is no socket. It is removed.
    """
    shared = os.open(socket_path.parent, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        await _wait_for_socket(shared, socket_path, timeout_s)
        _take(shared, socket_path, private_path)
    finally:
        os.close(shared)


async def _wait_for_socket(shared: int, path: Path, timeout_s: float) -> None:
    """Wait until something listens there, or what is there is no socket at all.

    The name appears before the socket listens. Moved in between, it would be gone under the hands
    of a guest kernel that makes the socket through a server of its own (gVisor's gofer looks it
    up once more after bind), and the agent would fail to listen.
    """
    began = time.monotonic()
    while not _is_ready(shared, path.name):
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise DeadlineExceeded(f"the agent made no socket within {timeout_s:g} s")
        await asyncio.sleep(_PAUSE_S if waited < _SOON_S else _LONG_PAUSE_S)


def _is_ready(shared: int, name: str) -> bool:
    """Whether there is something that will not change any more by itself.

    The descriptor pins what was looked at: a link put in its place later is not followed.
    """
    try:
        pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=shared)
    except FileNotFoundError:
        return False
    try:
        if not stat.S_ISSOCK(os.fstat(pinned).st_mode):
            return True
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            return probe.connect_ex(f"/proc/self/fd/{pinned}") in (0, errno.EAGAIN)
    finally:
        os.close(pinned)


def _take(shared: int, socket_path: Path, private_path: Path) -> None:
    try:
        # Only to refuse early what is plainly wrong; the judgement that counts comes after.
        _refuse_unless_socket(os.lstat(socket_path.name, dir_fd=shared).st_mode)
        target = _move(shared, socket_path, private_path)
    except FileNotFoundError:
        raise GuestMisbehaved("the agent's socket was taken away while it was claimed") from None
    except OSError as error:
        # Such as a directory that was put in the socket's place just now.
        raise GuestMisbehaved(f"the agent's socket cannot be moved: {error.strerror}") from error
    mode = target.lstat().st_mode
    if not stat.S_ISSOCK(mode) and not stat.S_ISDIR(mode):
        target.unlink(missing_ok=True)  # a link itself, never what it names
    # A directory is left: the place is removed with the machine, by code that expects such trees.
    _refuse_unless_socket(mode)
    target.chmod(0o600)  # it is a socket, and nobody else can reach it any more
    if target != private_path:
        private_path.unlink(missing_ok=True)
        private_path.symlink_to(target)


def _refuse_unless_socket(mode: int) -> None:
    if not stat.S_ISSOCK(mode):
        raise GuestMisbehaved("what the guest put in place of the agent's socket is no socket")


def _move(shared: int, socket_path: Path, private_path: Path) -> Path:
    try:
        os.rename(socket_path.name, private_path, src_dir_fd=shared)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return private_path
    beside = socket_path.parent.parent
    status = beside.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise GuestMisbehaved(f"{beside} can be written by others")
    os.rename(socket_path.name, beside / socket_path.name, src_dir_fd=shared)
    return beside / socket_path.name
