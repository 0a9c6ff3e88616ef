"""Writing below one directory, and nowhere else, on behalf of a stranger.

:class:`Tree` resolves names as a process would that has the directory for its root: ``..`` stops
at the top, absolute links start there. Every step is ``openat`` with ``O_NOFOLLOW`` on a
descriptor of the step before, links are read and resolved by us, so the host's own resolution,
which would follow a planted link to the host's ``/etc``, never takes part. The last component of
a name is never followed at all.

Nothing else may write below the directory meanwhile.

Source: path_resolution(7), openat(2); openat2(2) ``RESOLVE_IN_ROOT`` for the semantics (the
standard library does not offer the call).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Generator
from typing import Self

from tupper.core.errors import ImageRejected

PATH_MAX = 4096
NAME_MAX = 255
_LINKS_MAX = 40
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Names = tuple[bytes, ...]


def show(name: bytes) -> str:
    """A name for an error's text."""
    return name[:200].decode("utf-8", "backslashreplace")


def split_name(name: bytes) -> Names:
    """The components of a name in an archive; absolute ones are taken as relative.

    Raises:
        ImageRejected: it goes up, is too long, or holds what no file name can.
    """
    if len(name) >= PATH_MAX:
        raise ImageRejected(f"a path of {len(name)} bytes, at most {PATH_MAX - 1} are possible")
    if b"\0" in name:
        raise ImageRejected(f"{show(name)}: a name with a NUL byte")
    parts = tuple(part for part in name.split(b"/") if part not in {b"", b"."})
    for part in parts:
        if part == b"..":
            raise ImageRejected(f"{show(name)}: a name that goes up")
        if len(part) > NAME_MAX:
            raise ImageRejected(f"{show(name)}: a file name of {len(part)} bytes")
    return parts


class Tree:
    """A directory that acts as the root for all names. A context manager.

    Args:
        root: the directory; it must exist.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.open(root, _DIRECTORY)
        self._cached: tuple[Names, int, Names] | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the descriptors."""
        self.forget()
        os.close(self._root)

    @property
    def root(self) -> int:
        """A descriptor of the root; stays ours."""
        return self._root

    def forget(self) -> None:
        """Drop the remembered directory: something on the way to it may have been replaced."""
        if self._cached is not None:
            os.close(self._cached[1])
            self._cached = None

    @contextlib.contextmanager
    def directory(self, names: Names, *, create: bool) -> Generator[tuple[int, Names], None, None]:
        """Open the directory of that name, following links inside the tree.

        Args:
            names: components, from the root.
            create: make what is missing; what is in the way and no directory is removed.

        Yields:
            a descriptor, closed afterwards, and where the directory really is.

        Raises:
            FileNotFoundError, NotADirectoryError: only without ``create``.
            ImageRejected: too many links.
        """
        if self._cached is None or self._cached[0] != names:
            fds, places = self._walk(names, create=create)
            top = fds.pop()
            for fd in fds:
                os.close(fd)
            self.forget()
            self._cached = (names, top, tuple(places))
        place = self._cached[2]
        fd = os.dup(self._cached[1])  # what the caller does may make us forget ours
        try:
            yield fd, place
        finally:
            os.close(fd)

    def _walk(self, names: Names, *, create: bool) -> tuple[list[int], list[bytes]]:
        fds = [os.dup(self._root)]
        places: list[bytes] = []
        todo = list(reversed(names))
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part in {b"", b"."}:
                    continue
                if part == b"..":
                    _go_up(fds, places)
                    continue
                target = self._step(fds, places, part, create=create)
                if target is None:
                    continue
                links += 1
                _check_links(links, names)
                if target.startswith(b"/"):
                    while places:
                        _go_up(fds, places)
                todo.extend(reversed(target.split(b"/")))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return fds, places

    def _step(
        self, fds: list[int], places: list[bytes], part: bytes, *, create: bool
    ) -> bytes | None:
        """Enter one directory, or return the target of the link that is there."""
        parent = fds[-1]
        try:
            fds.append(os.open(part, _DIRECTORY, dir_fd=parent))
        except FileNotFoundError:
            if not create:
                raise
            os.mkdir(part, 0o755, dir_fd=parent)
            fds.append(os.open(part, _DIRECTORY, dir_fd=parent))
        except OSError as error:
            # O_DIRECTORY with O_NOFOLLOW says ENOTDIR for a link too.
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            status = os.stat(part, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return os.readlink(part, dir_fd=parent)
            if not create:
                raise
            os.unlink(part, dir_fd=parent)
            os.mkdir(part, 0o755, dir_fd=parent)
            fds.append(os.open(part, _DIRECTORY, dir_fd=parent))
        places.append(part)
        return None

    def remove(self, parent: int, name: bytes, place: Names, keep: Collection[Names]) -> bool:
        """Remove a name and all below it, except what is in ``keep``.

        Args:
            parent: descriptor of its directory.
            name: the last component.
            place: where it really is, for comparison with ``keep``.
            keep: real places; a directory above a kept one stays as well, if it is in ``keep``.

        Returns:
            whether nothing is left of it.
        """
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return True
        self.forget()
        if not stat.S_ISDIR(status.st_mode):
            if place in keep:
                return False
            os.unlink(name, dir_fd=parent)
            return True
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            empty = self.clear(fd, place, keep)
        finally:
            os.close(fd)
        if place in keep or not empty:
            return False
        os.rmdir(name, dir_fd=parent)
        return True

    def clear(self, directory: int, place: Names, keep: Collection[Names]) -> bool:
        """Remove all that a directory holds, except ``keep``; whether it is empty now."""
        empty = True
        for text in os.listdir(directory):
            child = os.fsencode(text)
            if not self.remove(directory, child, (*place, child), keep):
                empty = False
        return empty


def _check_links(count: int, names: Names) -> None:
    if count > _LINKS_MAX:
        raise ImageRejected(f"{show(b'/'.join(names))}: too many levels of links")


def _go_up(fds: list[int], places: list[bytes]) -> None:
    if places:
        os.close(fds.pop())
        places.pop()
