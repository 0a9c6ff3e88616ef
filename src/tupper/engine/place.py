"""Where the data directory lies: on which file system, and whether it is still the same one.

SQLite's locks and our own are not dependable on network file systems, and a sandbox's disk over
a network is slow, so those are refused. Source: https://sqlite.org/wal.html, section 1;
proc_pid_mountinfo(5).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import StoreError

NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre", "gpfs",
    "ncpfs", "coda", "ocfs2", "gfs2", "beegfs",
    "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs", "fuse.gcsfuse", "fuse.davfs",
    "fuse.ceph", "fuse.curlftpfs", "fuse.goofys", "fuse.juicefs", "fuse.afpfs",
})  # fmt: skip


def file_system_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that a path is on.

    Args:
        path: absolute, without links.
        mountinfo: the text of ``/proc/self/mountinfo``.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(unescape(fields[4]))
        depth = len(point.parts)
        # Of two mounts on one place the later line is the upper one.
        if depth >= best and path.is_relative_to(point):
            best, kind = depth, right.split(" ", 1)[0]
    return kind


def refuse_network(path: Path) -> None:
    """Make sure that a directory is on a local file system.

    Raises:
        StoreError: it is on one of another host.
    """
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return
    kind = file_system_of(path.resolve(), mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"the data directory {path} is on a network file system ({kind})",
            hint="set TUPPER_HOME to a directory on a local disk",
        )


@dataclass(frozen=True, slots=True)
class Place:
    """What tells a data directory from a copy of it.

    One of the two is enough: a directory that was renamed keeps its number, and one that stands
    where it stood is the same, whatever its file system calls it today (the numbers of some
    change with every mount). A copy has neither. Source: inode(7); overlayfs, "Inode properties".

    Args:
        path: absolute, without links.
        device, inode: of the directory.
    """

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, directory: Path) -> Place:
        """The place of a directory that is there."""
        real = directory.resolve()
        status = real.stat()
        return cls(str(real), status.st_dev, status.st_ino)

    def render(self) -> str:
        """As text, to be kept in the directory."""
        return json.dumps([self.path, self.device, self.inode])

    def is_that_of(self, kept: str) -> bool:
        """Whether a kept text speaks of this place; an older tupper kept none."""
        if not kept:
            return True
        path, device, inode = json.loads(kept)
        return path == self.path or (device, inode) == (self.device, self.inode)


def unescape(text: str) -> str:
    """A path as the kernel writes it in its lists of mounts: some characters in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
