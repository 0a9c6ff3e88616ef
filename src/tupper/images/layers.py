"""Applying the layers of an image to a directory, one after the other, as a stream.

What a layer says is what ends up on disk: modes with setuid bits, owners, times, hard links,
``user.*`` attributes and capabilities, whiteouts and opaque directories of the layers below. What
no honest layer says is refused (:class:`~tupper.core.errors.ImageRejected`): names that go up,
hard links to nothing, whiteouts of ``.`` or ``..``, more entries or bytes than allowed.

**Whiteouts** act on lower layers only, wherever they stand in the archive: what the same layer
wrote stays. The set of names that the present layer wrote is kept for this.

**What is left out**, and counted in :class:`Summary`: device nodes for an ordinary user, the
device 0:0 (overlayfs takes it for a whiteout), and attributes that mean something to overlayfs
or to the host's security modules.

Source: OCI image specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from tupper.core.errors import ImageRejected, OutOfDisk
from tupper.images.tarstream import Entry, Readable, TarStream
from tupper.images.tree import Names, Tree, show, split_name

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
_ID_MAX = 2**32 - 2  # 2**32 - 1 means "leave it" to chown(2)
_ZEROS = bytes(256 * 1024)
_DISK_CHECK_BYTES = 64 * 1024 * 1024
_XATTR = "SCHILY.xattr."
_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an image may be.

    Args:
        entries: files, directories and links in all layers together.
        size_bytes: what all files say they hold, holes too.
        min_free_bytes: what must stay free on the disk.
    """

    entries: int = 2_000_000
    size_bytes: int = 256 * 1024**3
    min_free_bytes: int = 512 * 1024**2


@dataclass(slots=True)
class Summary:
    """What was done so far.

    Args:
        entries: how many.
        size_bytes: what files say they hold.
        disk_bytes: what they take, in blocks of 4 KiB.
        skipped: reason → how often.
    """

    entries: int = 0
    size_bytes: int = 0
    disk_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])

    def skip(self, reason: str) -> None:
        """Count something that was left out."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


class LayerWriter:
    """Applies layers to one directory.

    Args:
        root: an empty directory, or one that holds the layers below.
        limits: for all layers together.
        devices: whether device nodes can be made.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, limits: Limits | None = None, devices: bool = False
    ) -> None:
        self.summary = Summary()
        self._tree = Tree(root)
        self._limits = limits or Limits()
        self._devices = devices
        self._written: set[Names] = set()
        self._times: dict[Names, int] = {}
        self._unchecked = _DISK_CHECK_BYTES  # so that the first file is checked

    def close(self) -> None:
        """Close the descriptors."""
        self._tree.__exit__()

    def apply(self, stream: Readable) -> None:
        """Apply one layer.

        Args:
            stream: the uncompressed archive; what follows its end mark is not read.

        Raises:
            ImageRejected: for what no honest layer holds; the directory is then useless.
            OutOfDisk: the disk is (nearly) full.
        """
        self._written.clear()
        self._times.clear()
        archive = TarStream(stream)
        for entry in archive:
            try:
                self._apply_entry(entry, archive)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise OutOfDisk(f"no space left while unpacking {show(entry.name)}") from error
                raise ImageRejected(
                    f"cannot unpack {show(entry.name)}: {error.strerror}"
                ) from error
        self._set_directory_times()

    def _apply_entry(self, entry: Entry, archive: TarStream) -> None:
        self._count(entry)
        names = split_name(entry.name)
        if any(part.startswith(b".wh..wh.") and part != OPAQUE for part in names):
            self.summary.skip("aufs bookkeeping")
            return
        if any(part.startswith(WHITEOUT) for part in names[:-1]):
            raise ImageRejected(f"{show(entry.name)}: a directory named like a whiteout")
        if not names:
            self._describe_root(entry)
            return
        if names[-1].startswith(WHITEOUT):
            self._white_out(names)
            return
        with self._tree.directory(names[:-1], create=True) as (parent, place):
            self._note((*place, names[-1]))
            self._make(entry, archive, parent, (*place, names[-1]))

    def _count(self, entry: Entry) -> None:
        self.summary.entries += 1
        if self.summary.entries > self._limits.entries:
            raise ImageRejected(f"more than {self._limits.entries} entries")
        if entry.kind in "012":
            self.summary.size_bytes += entry.real_size
        if self.summary.size_bytes > self._limits.size_bytes:
            raise ImageRejected(
                f"{show(entry.name)}: with it the image holds {self.summary.size_bytes} bytes, "
                f"at most {self._limits.size_bytes} are allowed"
            )

    def _note(self, place: Names) -> None:
        """Remember that this layer wrote a place, which implies the directories above it."""
        while place and place not in self._written:
            self._written.add(place)
            place = place[:-1]

    def _white_out(self, names: Names) -> None:
        victim = names[-1].removeprefix(WHITEOUT)
        if victim in {b"", b".", b".."}:
            raise ImageRejected(f"{show(b'/'.join(names))}: a whiteout of nothing")
        # Where there is no such directory, there is nothing to hide.
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            self._tree.directory(names[:-1], create=False) as (parent, place),
        ):
            if names[-1] == OPAQUE:
                self._tree.clear(parent, place, self._written)
            else:
                self._tree.remove(parent, victim, (*place, victim), self._written)

    def _make(self, entry: Entry, archive: TarStream, parent: int, place: Names) -> None:
        name = place[-1]
        is_directory = entry.kind == "5"
        if not self._clear_way(parent, name, keep_directory=is_directory):
            self._tree.remove(parent, name, place, ())
        match entry.kind:
            case "0":
                self._make_file(entry, archive, parent, name)
            case "5":
                self._make_directory(entry, parent, place)
            case "2":
                os.symlink(entry.link, name, dir_fd=parent)
                _own(parent, name, entry)
                _set_time(parent, name, entry.mtime_ns)
            case "1":
                self._make_hard_link(entry, parent, name)
            case "3" | "4" | "6":
                self._make_node(entry, parent, name)
            case _:
                self.summary.skip(f"entry of type {entry.kind!r}")

    def _clear_way(self, parent: int, name: bytes, *, keep_directory: bool) -> bool:
        """Remove what has the name now; False if it is a directory that must go."""
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if stat.S_ISDIR(status.st_mode):
            return keep_directory
        if stat.S_ISLNK(status.st_mode):
            self._tree.forget()
        os.unlink(name, dir_fd=parent)
        return True

    def _describe_root(self, entry: Entry) -> None:
        if entry.kind != "5":
            raise ImageRejected("an entry that would replace the root directory")
        self._describe(self._tree.root, entry)
        self._times[()] = entry.mtime_ns

    def _make_directory(self, entry: Entry, parent: int, place: Names) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place[-1], 0o700, dir_fd=parent)
            self.summary.disk_bytes += _BLOCK
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(place[-1], flags, dir_fd=parent)
        try:
            self._describe(fd, entry)
        finally:
            os.close(fd)
        self._times[place] = entry.mtime_ns

    def _make_file(self, entry: Entry, archive: TarStream, parent: int, name: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            self._fill(fd, entry, archive.data())
            self._describe(fd, entry)
            os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(fd)

    def _fill(self, fd: int, entry: Entry, data: Iterator[bytes]) -> None:
        if entry.sparse is not None:
            _fill_pieces(fd, entry.sparse, data)
            os.ftruncate(fd, entry.real_size)
            return
        hole = False
        for chunk in data:
            self._check_disk(len(chunk))
            # Zeros become holes: a bomb of zeros takes no disk.
            hole = len(chunk) == len(_ZEROS) and chunk == _ZEROS
            if hole:
                os.lseek(fd, len(chunk), os.SEEK_CUR)
                continue
            self.summary.disk_bytes += -(-len(chunk) // _BLOCK) * _BLOCK
            _write_all(fd, chunk)
        if hole:
            os.ftruncate(fd, entry.size)

    def _check_disk(self, size: int) -> None:
        self._unchecked += size
        if self._unchecked < _DISK_CHECK_BYTES:
            return
        self._unchecked = 0
        status = os.fstatvfs(self._tree.root)
        free = status.f_bavail * status.f_frsize
        if free < self._limits.min_free_bytes:
            raise OutOfDisk(
                f"{free // 2**20} MiB of disk are free, {self._limits.min_free_bytes // 2**20} MiB "
                "must stay free",
                hint="remove images that are not used: tupper image prune",
            )

    def _make_hard_link(self, entry: Entry, parent: int, name: bytes) -> None:
        names = split_name(entry.link)
        if not names:
            raise ImageRejected(f"{show(entry.name)}: a hard link to the root directory")
        try:
            with self._tree.directory(names[:-1], create=False) as (source, _):
                status = os.stat(names[-1], dir_fd=source, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    raise ImageRejected(f"{show(entry.name)}: a hard link to a directory")
                os.link(
                    names[-1], name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False
                )
        except (FileNotFoundError, NotADirectoryError):
            raise ImageRejected(
                f"{show(entry.name)}: a hard link to {show(entry.link)}, which is not in the image"
            ) from None

    def _make_node(self, entry: Entry, parent: int, name: bytes) -> None:
        if entry.kind == "6":
            os.mkfifo(name, 0o600, dir_fd=parent)
        elif not self._devices:
            self.summary.skip("device node")
            return
        elif entry.device == (0, 0):
            self.summary.skip("device 0:0")
            return
        else:
            kind = stat.S_IFCHR if entry.kind == "3" else stat.S_IFBLK
            os.mknod(name, kind | 0o600, os.makedev(*entry.device), dir_fd=parent)
        _own(parent, name, entry)
        # Not a link, we made it just now: following cannot lead away.
        os.chmod(name, entry.mode, dir_fd=parent)
        _set_time(parent, name, entry.mtime_ns)

    def _describe(self, fd: int, entry: Entry) -> None:
        """Owner first: changing it clears setuid bits and capabilities."""
        os.fchown(fd, *_owner(entry))
        os.fchmod(fd, entry.mode)
        for key, value in entry.pax.items():
            if key.startswith(_XATTR):
                self._set_attribute(fd, key.removeprefix(_XATTR), value)

    def _set_attribute(self, fd: int, key: str, value: bytes) -> None:
        wanted = key == "security.capability" or (
            key.startswith("user.") and not key.startswith("user.overlay.")
        )
        if not wanted:
            self.summary.skip("extended attribute")
            return
        try:
            os.setxattr(fd, key, value)
        except OSError:
            self.summary.skip("extended attribute")  # the disk's file system has none

    def _set_directory_times(self) -> None:
        for place, mtime_ns in self._times.items():
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                self._tree.directory(place, create=False) as (fd, where),
            ):
                if where == place:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))


def _fill_pieces(fd: int, pieces: list[tuple[int, int]], data: Iterator[bytes]) -> None:
    """Spread the stored bytes of a sparse file over its pieces."""
    pending = b""
    for offset, length in pieces:
        os.lseek(fd, offset, os.SEEK_SET)
        left = length
        while left:
            pending = pending or next(data)
            _write_all(fd, pending[:left])
            written = min(left, len(pending))
            left -= written
            pending = pending[written:]


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _owner(entry: Entry) -> tuple[int, int]:
    if not (0 <= entry.uid <= _ID_MAX and 0 <= entry.gid <= _ID_MAX):
        raise ImageRejected(f"{show(entry.name)}: an impossible owner, {entry.uid}:{entry.gid}")
    return entry.uid, entry.gid


def _own(parent: int, name: bytes, entry: Entry) -> None:
    os.chown(name, *_owner(entry), dir_fd=parent, follow_symlinks=False)


def _set_time(parent: int, name: bytes, mtime_ns: int) -> None:
    os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=parent, follow_symlinks=False)
