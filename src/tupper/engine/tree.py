"""Files below one directory that a hostile guest can change at any moment.

Paths are walked name by name from a descriptor of the root, and no call of the kernel's ever gets
more than one name: links are read by us and walked inside the root, as if that were ``/``; ``..``
ends there. What is opened was looked at before through a descriptor of its own, so a device or a
pipe that takes the place of a file is never opened.

Every function blocks; call them in threads. Errors of the file system are
:class:`~tupper.core.errors.TupperError` with the path as the caller wrote it, never the host's.

Source: path_resolution(7), openat(2), symlink(7). It does what RESOLVE_IN_ROOT of openat2(2) does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    NotFound,
    OutOfDisk,
    PermissionDenied,
    TupperError,
    Unavailable,
)

MAX_LINKS = 40
MAX_ENTRIES = 50_000
MAX_DEPTH = 64
_CHUNK = 1024 * 1024
_DIR_MODE, _FILE_MODE = 0o755, 0o644
_MODE_MAX = 0o7777
_UPLOAD = ".upload-"


class PathNotFound(NotFound):
    """No such file or directory in the tree."""

    code = "path_not_found"


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at a path.

    Args:
        path: from the root, beginning with ``/``.
        kind: ``file``, ``directory``, ``symlink`` or ``unknown``.
        size: bytes.
        mode: permission bits.
        uid, gid: as inside.
        atime, mtime, ctime: unix seconds.
        target: of a link, as written in it; else empty.
    """

    path: str
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    atime: float
    mtime: float
    ctime: float
    target: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who shall own what is made, and with which permissions; None for as it comes."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None

    def check(self) -> None:
        """Refuse what is no id and no mode."""
        for name, value, most in (
            ("uid", self.uid, 2**31), ("gid", self.gid, 2**31), ("mode", self.mode, _MODE_MAX),
        ):  # fmt: skip
            if value is not None and not 0 <= value <= most:
                raise InvalidArgument(f"{name} must be from 0 to {most}, not {value}")


@dataclass(frozen=True, slots=True)
class _Place:
    """A name in an open directory.

    Args:
        parent: the directory's descriptor.
        name: in it; ``.`` for the directory itself.
        path: from the root, links followed.
    """

    parent: int
    name: str
    path: str


@contextlib.contextmanager
def _told(path: str) -> Generator[None]:
    """The file system's refusals, in our words."""
    try:
        yield
    except OSError as error:
        raise _refusal(error, path) from error


def _refusal(error: OSError, path: str) -> TupperError:
    shown = path[:500].encode("utf-8", "replace").decode()
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return PathNotFound(f"path {shown} does not exist")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfDisk(f"the disk is full: {shown} cannot be written")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"{shown} belongs to a user inside that this host's may not touch")
    if error.errno == errno.EEXIST:
        return AlreadyExists(f"{shown} exists")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL):
        return InvalidArgument(f"{shown}: {os.strerror(error.errno)}")
    if error.errno in (errno.ENOTEMPTY, errno.EBUSY, errno.ETXTBSY):
        return Conflict(f"{shown}: {os.strerror(error.errno)}")
    return Unavailable(f"{shown}: {os.strerror(error.errno or 0)}")


class Tree:
    """The files below one directory.

    Args:
        root: a directory of ours; only what is below it is the guest's.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def stat(self, path: str) -> Entry:
        """What lies at a path; of a link, the link itself."""
        with _told(path), self._find(path, follow=False) as place:
            return _entry(place)

    def list(self, path: str, depth: int = 1) -> list[Entry]:
        """What lies in a directory, each before what is below it; links are not followed.

        Raises:
            InvalidArgument: no directory, or more than :data:`MAX_ENTRIES`.
        """
        found: list[Entry] = []
        with _told(path), self._find(path, follow=True) as place:
            fd = _open_directory(place)
            _collect(fd, place.path, max(1, min(depth, MAX_DEPTH)), found)
        return found

    def make_directory(self, path: str, owner: Owner, *, force: bool) -> Entry:
        """Make a directory.

        Args:
            path: of it.
            owner: of what is made.
            force: make those above it too, and be content if it is there.

        Raises:
            AlreadyExists: it is there, and not ``force``.
        """
        owner.check()
        with _told(path), self._find(path, follow=True, make=owner if force else None) as place:
            try:
                _make_directory(place.parent, place.name, owner)
            except FileExistsError:
                if not force or not stat.S_ISDIR(_look(place).st_mode):
                    raise
            return _entry(place)

    def change(self, path: str, owner: Owner) -> Entry:
        """Change owner and permissions; of a link, its owner only."""
        owner.check()
        with _told(path), self._find(path, follow=False) as place:
            if owner.uid is not None or owner.gid is not None:
                have = _look(place)
                _chown(
                    place.parent,
                    place.name,
                    have.st_uid if owner.uid is None else outside(owner.uid),
                    have.st_gid if owner.gid is None else outside(owner.gid),
                )
            if owner.mode is not None:
                _set_mode(place, owner.mode)
            return _entry(place)

    def remove(self, path: str) -> None:
        """Remove a file, a link or a directory with all below; follows no link.

        Raises:
            InvalidArgument: the root itself.
        """
        with _told(path), self._find(path, follow=False) as place:
            if place.name == ".":
                raise InvalidArgument("the root of a volume cannot be removed")
            if stat.S_ISDIR(_look(place).st_mode):
                shutil.rmtree(place.name, dir_fd=place.parent)
            else:
                os.unlink(place.name, dir_fd=place.parent)

    def open_file(self, path: str) -> tuple[int, int]:
        """Open a regular file to read from it; (descriptor, size).

        Raises:
            InvalidArgument: it is something else.
        """
        with _told(path), self._find(path, follow=True) as place:
            handle = os.open(place.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=place.parent)
            try:
                info = os.fstat(handle)
                if not stat.S_ISREG(info.st_mode):
                    raise InvalidArgument(f"path {path[:500]} is not a file")
                # The same inode, whatever the name means by now.
                return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), info.st_size
            finally:
                os.close(handle)

    @contextlib.contextmanager
    def writing(self, path: str, owner: Owner, *, force: bool) -> Generator[Upload]:
        """Write a file beside its place; it takes the place, whole and on disk, when told so.

        Args:
            path: of the file; one that is there is replaced.
            owner: of a new file; those of a replaced one stay.
            force: make directories above it.
        """
        owner.check()
        with _told(path), self._find(path, follow=True, make=owner if force else None) as place:
            upload = Upload(place, owner, path)
            try:
                yield upload
            finally:
                upload.close()

    @contextlib.contextmanager
    def _find(self, path: str, *, follow: bool, make: Owner | None = None) -> Generator[_Place]:
        """Walk to a name whose parent exists; its descriptors are closed in the end."""
        if "\0" in path or len(path) > 4096:
            raise InvalidArgument("a path has at most 4096 characters and no NUL")
        with contextlib.ExitStack() as stack:
            root = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            yield _Walk(root, stack, make).go(path, follow=follow)


class _Walk:
    """One walk from the root. Descriptors that it opens are the stack's."""

    def __init__(self, root: int, stack: contextlib.ExitStack, make: Owner | None) -> None:
        self._stack = stack
        self._make = make
        self._fds = [root]
        self._names: list[str] = []
        self._links = 0

    def go(self, path: str, *, follow: bool) -> _Place:
        todo = deque(_parts(path))
        while todo:
            name = todo.popleft()
            if name == "..":
                del self._fds[max(1, len(self._fds) - 1) :]
                del self._names[-1:]
                continue
            target = self._link_at(name) if todo or follow else None
            if target is not None:
                if target.startswith("/"):
                    del self._fds[1:], self._names[:]
                todo.extendleft(reversed(_parts(target)))
            elif todo:
                self._enter(name)
            else:
                return _Place(self._fds[-1], name, "/" + "/".join([*self._names, name]))
        return _Place(self._fds[-1], ".", "/" + "/".join(self._names))

    def _link_at(self, name: str) -> str | None:
        try:
            target = os.readlink(name, dir_fd=self._fds[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None  # no link, or nothing
            raise
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        return target

    def _enter(self, name: str) -> None:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fds[-1])
        except FileNotFoundError:
            if self._make is None:
                raise
            _make_directory(self._fds[-1], name, Owner(self._make.uid, self._make.gid))
            fd = os.open(name, flags, dir_fd=self._fds[-1])
        self._stack.callback(os.close, fd)
        self._fds.append(fd)
        self._names.append(name)


class Upload:
    """A file that is being written. Made by :meth:`Tree.writing`."""

    def __init__(self, place: _Place, owner: Owner, path: str) -> None:
        if place.name == ".":
            raise InvalidArgument(f"path {path[:500]} is a directory")
        self._place, self._owner, self._path = place, owner, path
        self._before: os.stat_result | None = None
        with contextlib.suppress(FileNotFoundError):
            self._before = _look(place)
        if self._before is not None and not stat.S_ISREG(self._before.st_mode):
            raise InvalidArgument(f"path {path[:500]} is not a file")
        self._name = ""
        self._fd = self._open()

    def _open(self) -> int:
        """A file without a name, so that nothing is left if we are killed; else a hidden one."""
        parent, flags = self._place.parent, os.O_WRONLY | os.O_CLOEXEC
        try:
            return os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
        self._name = _hidden()
        flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(self._name, flags, 0o600, dir_fd=parent)

    def write(self, data: bytes) -> None:
        """Add to it."""
        view = memoryview(data)
        with _told(self._path):
            while view:
                view = view[os.write(self._fd, view) :]

    def finish(self) -> Entry:
        """Have it take its place, and be on disk."""
        place, before, wanted = self._place, self._before, self._owner
        with _told(self._path):
            if before is not None:
                kept = Owner(before.st_uid, before.st_gid, stat.S_IMODE(before.st_mode))
                owner = Owner(
                    kept.uid if wanted.uid is None else outside(wanted.uid),
                    kept.gid if wanted.gid is None else outside(wanted.gid),
                    kept.mode if wanted.mode is None else wanted.mode,
                )
            else:
                owner = _owner_in(place.parent, wanted)
            _own_descriptor(self._fd, owner)
            os.fchmod(self._fd, _FILE_MODE if owner.mode is None else owner.mode)
            os.fsync(self._fd)
            if not self._name:
                name = _hidden()
                os.link(f"/proc/self/fd/{self._fd}", name, dst_dir_fd=place.parent)
                self._name = name
            os.rename(self._name, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
            self._name = ""
            _sync(place.parent)
            return _entry(place)

    def close(self) -> None:
        """Take away what has not taken its place. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._place.parent)


def _hidden() -> str:
    return _UPLOAD + secrets.token_hex(8)


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _look(place: _Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)


def _entry(place: _Place) -> Entry:
    info = _look(place)
    target = ""
    if stat.S_ISLNK(info.st_mode):
        target = os.readlink(place.name, dir_fd=place.parent)
    return Entry(
        path=place.path.encode("utf-8", "replace").decode(),
        kind=_kind(info.st_mode),
        size=info.st_size,
        mode=stat.S_IMODE(info.st_mode),
        uid=inside(info.st_uid),
        gid=inside(info.st_gid),
        atime=info.st_atime,
        mtime=info.st_mtime,
        ctime=info.st_ctime,
        target=target.encode("utf-8", "replace").decode(),
    )


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "unknown"


def _open_directory(place: _Place) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(place.name, flags, dir_fd=place.parent)


def _collect(fd: int, path: str, depth: int, found: list[Entry]) -> None:
    """List a directory; closes its descriptor."""
    try:
        for name in sorted(os.listdir(fd)):
            place = _Place(fd, name, f"{path.rstrip('/')}/{name}")
            try:
                entry = _entry(place)
            except FileNotFoundError:
                continue  # gone meanwhile
            if len(found) >= MAX_ENTRIES:
                raise InvalidArgument(f"more than {MAX_ENTRIES} entries", hint="ask for less depth")
            found.append(entry)
            if entry.kind == "directory" and depth > 1:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    _collect(_open_directory(place), place.path, depth - 1, found)
    finally:
        os.close(fd)


def _make_directory(parent: int, name: str, owner: Owner) -> None:
    os.mkdir(name, _DIR_MODE, dir_fd=parent)
    _own(parent, name, owner)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fchmod(fd, _DIR_MODE if owner.mode is None else owner.mode)
        os.fsync(fd)
    finally:
        os.close(fd)
    _sync(parent)


def _set_mode(place: _Place, mode: int) -> None:
    fd = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.parent)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise InvalidArgument("a link has no permissions of its own")
        Path(f"/proc/self/fd/{fd}").chmod(mode)
    finally:
        os.close(fd)


def _owner_in(parent: int, wanted: Owner) -> Owner:
    """Who owns something new: who is named, else who owns the directory."""
    above = os.fstat(parent)
    uid = above.st_uid if wanted.uid is None else outside(wanted.uid)
    gid = above.st_gid if wanted.gid is None else outside(wanted.gid)
    return Owner(uid, gid, wanted.mode)


def _own(parent: int, name: str, wanted: Owner) -> None:
    owner = _owner_in(parent, wanted)
    if owner.uid is not None and owner.gid is not None:
        _chown(parent, name, owner.uid, owner.gid)


def _chown(parent: int, name: str, uid: int, gid: int) -> None:
    """Give something away; an ordinary user's files are his already, or stay a guest's."""
    if os.geteuid() == 0:
        os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)


def _own_descriptor(fd: int, owner: Owner) -> None:
    if os.geteuid() == 0 and owner.uid is not None and owner.gid is not None:
        os.fchown(fd, owner.uid, owner.gid)


def _sync(directory: int) -> None:
    """Have the names in a directory on disk."""
    fd = os.open(f"/proc/self/fd/{directory}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def inside(uid: int) -> int:
    """A host's id as the guest sees it; an ordinary user is the guest's root."""
    euid = os.geteuid()
    return 0 if euid and uid in (euid, os.getegid()) else uid


def outside(uid: int) -> int:
    """A guest's id as the host has it.

    Raises:
        PermissionDenied: an ordinary user of the host can give files to the guest's root alone.
    """
    if os.geteuid() == 0:
        return uid
    if uid:
        raise PermissionDenied(
            f"files cannot be given to user {uid} inside",
            hint="tupper has to run as root for that",
        )
    return os.geteuid()


def read_chunks(fd: int, size: int) -> Generator[bytes]:
    """A file's bytes, as many as it had when it was opened.

    Raises:
        Unavailable: it became shorter meanwhile.
    """
    left = size
    while left:
        chunk = os.read(fd, min(left, _CHUNK))
        if not chunk:
            raise Unavailable("the file became shorter while it was read")
        left -= len(chunk)
        yield chunk
