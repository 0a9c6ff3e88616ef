"""Writing what a sandbox sends: a hostile tar stream can reach nothing outside its directory.

Every name is walked from a descriptor of the target, part by part, each opened with ``O_NOFOLLOW``:
a link on the way is refused whoever planted it, so the walk cannot leave the target even if the
archive changes it meanwhile. Files are written under a name of ours and renamed into place, so no
existing file, device or link is ever written through. Links are kept as links. What is neither
file, directory nor link is left out, set-id and sticky bits are cleared.

Source: openat(2), O_NOFOLLOW; renameat(2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from tupper.core.errors import GuestMisbehaved
from tupper.sdk._shared.errors import UnsupportedException
from tupper.sdk._shared.tar import Entry, Kind, TarParser

MAX_BYTES = 64 * 2**30
MAX_ENTRIES = 1_000_000
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_RDONLY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
Parts = tuple[str, ...]


class TreeWriter:
    """Unpacks a tar stream into a directory.

    Args:
        target: the directory; made if it is missing.
        max_bytes: of content that are written at most.
        max_entries: files, directories and links that are made at most.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        max_entries: int | None = None,
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise UnsupportedException("downloading a tree needs a POSIX system")
        self._parser = TarParser()
        self._bytes_left = MAX_BYTES if max_bytes is None else max_bytes
        self._entries_left = MAX_ENTRIES if max_entries is None else max_entries
        self._created: list[tuple[Parts, bool]] = []
        self._files: set[Parts] = set()
        self._modes: list[tuple[Parts, int, float]] = []
        self._trail: list[tuple[str, int]] = []
        self._file: _OpenFile | None = None
        self._made_root = _make_root(Path(target))
        self._root = os.open(target, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))

    def feed(self, data: bytes) -> None:
        """Take the next bytes and write what they complete.

        Errors:
            GuestMisbehaved: a name that leads outside, more than the limits, no tar stream.
            OSError: the disk is full, or the target cannot be written to.
        """
        for item in self._parser.feed(data):
            if isinstance(item, Entry):
                self._finish_file()
                self._take(item)
            elif self._file is not None:
                self._bytes_left -= len(item)
                if self._bytes_left < 0:
                    raise GuestMisbehaved("tar: more content than the limit of the download")
                self._file.write(item)

    def finish(self) -> None:
        """The stream has ended: set the modes of directories.

        Errors:
            GuestMisbehaved: it ended too early.
        """
        self._parser.close()
        self._finish_file()
        for parts, mode, mtime in reversed(self._modes):
            with contextlib.suppress(OSError):
                parent = self._walk(parts[:-1])
                fd = os.open(parts[-1], _DIRECTORY, dir_fd=parent)
                try:
                    os.fchmod(fd, mode & 0o777 | 0o700)
                    os.utime(fd, (mtime, mtime))
                finally:
                    os.close(fd)

    def undo(self) -> None:
        """Remove what was made; what was there before stays."""
        if self._file is not None:
            self._file.discard()
            self._file = None
        for parts, is_directory in reversed(self._created):
            with contextlib.suppress(OSError, GuestMisbehaved):
                parent = self._walk(parts[:-1])
                if is_directory:
                    os.rmdir(parts[-1], dir_fd=parent)
                else:
                    os.unlink(parts[-1], dir_fd=parent)
        for directory in self._made_root:
            with contextlib.suppress(OSError):
                directory.rmdir()

    def close(self) -> None:
        """Close all descriptors."""
        if self._file is not None:
            self._file.discard()
            self._file = None
        self._leave(0)
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _take(self, entry: Entry) -> None:
        parts = parse_name(entry.name)
        if not parts:
            return
        self._entries_left -= 1
        if self._entries_left < 0:
            raise GuestMisbehaved("tar: more entries than the limit of the download")
        parent = self._walk(parts[:-1])
        if entry.kind is Kind.DIRECTORY:
            self._make_directory(parent, parts)
            self._modes.append((parts, entry.mode, entry.mtime))
        elif entry.kind is Kind.FILE:
            self._file = _OpenFile(os.dup(parent), parts, entry)
        elif entry.kind is Kind.SYMLINK:
            self._make_symlink(parent, parts, entry.link)
        elif entry.kind is Kind.HARDLINK:
            self._make_hardlink(parts, parse_name(entry.link))

    def _walk(self, parts: Parts) -> int:
        """A descriptor of a directory below the target; missing ones are made."""
        common = 0
        while common < min(len(parts), len(self._trail)):
            if self._trail[common][0] != parts[common]:
                break
            common += 1
        self._leave(common)
        for depth in range(common, len(parts)):
            fd = self._trail[-1][1] if self._trail else self._root
            self._trail.append((parts[depth], self._enter(fd, parts[: depth + 1])))
        return self._trail[-1][1] if self._trail else self._root

    def _leave(self, depth: int) -> None:
        while len(self._trail) > depth:
            os.close(self._trail.pop()[1])

    def _enter(self, fd: int, parts: Parts) -> int:
        try:
            return os.open(parts[-1], _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            self._make_directory(fd, parts)
            return os.open(parts[-1], _DIRECTORY, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise GuestMisbehaved(
                    f"tar: {render(parts)!r} leads through a link or a file"
                ) from None
            raise

    def _make_directory(self, parent: int, parts: Parts) -> None:
        try:
            os.mkdir(parts[-1], 0o755, dir_fd=parent)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(parts[-1], dir_fd=parent).st_mode):
                raise GuestMisbehaved(
                    f"tar: {render(parts)!r} exists and is no directory"
                ) from None
        else:
            self._created.append((parts, True))

    def _make_symlink(self, parent: int, parts: Parts, link: str) -> None:
        if not link or "\0" in link:
            raise GuestMisbehaved(f"tar: {render(parts)!r} is a link to nothing")
        name = _temporary()
        os.symlink(link, name, dir_fd=parent)
        self._place(parent, name, parts)
        self._files.discard(parts)

    def _make_hardlink(self, parts: Parts, source: Parts) -> None:
        """Only to a file that came earlier in this stream."""
        if source not in self._files:
            raise GuestMisbehaved(f"tar: {render(parts)!r} links to what is not in the archive")
        directory = os.dup(self._walk(source[:-1]))
        try:
            parent = self._walk(parts[:-1])
            name = _temporary()
            os.link(
                source[-1], name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False
            )
            self._place(parent, name, parts)
        finally:
            os.close(directory)

    def _finish_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.finish()
                self._place(file.parent, file.name, file.parts)
                self._files.add(file.parts)
            except BaseException:
                file.discard()
                raise
            file.close()

    def _place(self, parent: int, temporary: str, parts: Parts) -> None:
        """Rename into place. What was there is replaced, except a directory."""
        existed = True
        try:
            is_directory = stat.S_ISDIR(os.lstat(parts[-1], dir_fd=parent).st_mode)
        except FileNotFoundError:
            existed = is_directory = False
        try:
            refuse_directory(parts, found=is_directory)
            os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        if not existed:
            self._created.append((parts, False))


class _OpenFile:
    """A file that is being written under a name of ours.

    Args:
        parent: a descriptor of its directory; ours to close.
        parts: its name in the end.
        entry: its head.
    """

    def __init__(self, parent: int, parts: Parts, entry: Entry) -> None:
        self.parent = parent
        self.parts = parts
        self.name = _temporary()
        self._entry = entry
        self._left = entry.size
        self._fd = -1
        try:
            self._fd = os.open(self.name, _CREATE, 0o600, dir_fd=parent)
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def finish(self) -> None:
        if self._left:
            raise GuestMisbehaved(f"tar: {render(self.parts)!r} is cut")
        os.fchmod(self._fd, self._entry.mode & 0o777)
        os.utime(self._fd, (self._entry.mtime, self._entry.mtime))

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self.parent)
        self.close()

    def close(self) -> None:
        for fd in (self._fd, self.parent):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self.parent = -1


def parse_name(name: str) -> Parts:
    """The parts of a name inside the target; none for the target itself.

    Errors:
        GuestMisbehaved: it is absolute, climbs, or contains a NUL.
    """
    if name.startswith("/") or "\0" in name:
        raise GuestMisbehaved(f"tar: the name {name[:200]!r} is not one inside the target")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise GuestMisbehaved(f"tar: the name {name[:200]!r} climbs out of the target")
    return parts


def refuse_directory(parts: Parts, *, found: bool) -> None:
    """A file never replaces a directory."""
    if found:
        raise GuestMisbehaved(f"tar: {render(parts)!r} exists and is a directory")


def render(parts: Parts) -> str:
    """For messages."""
    return "/".join(parts)[:200]


def _temporary() -> str:
    return f".tupper-{secrets.token_hex(8)}"


def _make_root(target: Path) -> list[Path]:
    """Make the target; returns the directories that were missing, innermost first."""
    missing: list[Path] = []
    at = target
    while not at.exists():
        missing.append(at)
        at = at.parent
    target.mkdir(parents=True, exist_ok=True)
    return missing
