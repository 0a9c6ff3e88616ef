"""COPY of an uploaded archive into a workshop.

The archive is a stranger's. It is never unpacked on the host: its members are read one by one,
given the names that they shall have inside, and sent on to the agent, which unpacks them in the
guest. Members that lead out of their place, and everything that is no file, directory or link, end
the build. What a name means is decided here by its text alone.

Source: what E2B's clients put into it: ``tar.add(file, arcname=path relative to the context)``.
"""

from __future__ import annotations

import asyncio
import contextlib
import lzma
import posixpath
import re
import tarfile
import zlib
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import TemplateError
from tupper.engine.inside import Inside

_GLOB = re.compile(r"[*?\[]")
_MOST_MEMBERS = 1_000_000
_MOST_BYTES = 64 * 2**30
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Copying:
    """One COPY step.

    Args:
        source: as written: a path or a pattern.
        target: absolute, inside; with a slash at its end it is a directory.
        owner: ``user`` or ``user:group``.
        mode: octal; empty to keep each file's own.
    """

    source: str
    target: str
    owner: str
    mode: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether the source may stand for several things."""
        return bool(_GLOB.search(self.source))

    @property
    def top(self) -> str:
        """The source without ``./`` and the like; empty for the whole context."""
        top = posixpath.normpath(self.source)
        return "" if top == "." else top


async def copy_archive(inside: Inside, archive: Path, copying: Copying) -> None:
    """Copy what an archive holds to its place inside.

    A file gets the target's name, unless the target is a directory or ends with a slash. A
    directory's content goes into the target, and so do all things that a pattern stands for.

    Raises:
        TemplateError: the archive is no archive, or hostile.
    """
    is_single = await asyncio.to_thread(_is_single, archive, copying)
    target = copying.target
    user, _, group = copying.owner.partition(":")
    if not is_single or target.endswith("/") or await inside.kind(target) == "dir":
        place = _Place(target, "")
    else:
        place = _Place(*posixpath.split(target))
    await inside.upload(place.directory, _stream(archive, copying, place), user=user)
    if group and group != user:
        await _set_group(inside, copying, archive, place)


async def _set_group(inside: Inside, copying: Copying, archive: Path, place: _Place) -> None:
    """Give what was copied its group; nothing else at the target."""
    names = await asyncio.to_thread(
        lambda: {place.name_of(member, copying) for _, member in _members(archive)} - {""}
    )
    paths = sorted(posixpath.join(place.directory, name) for name in names)
    for start in range(0, len(paths), 500):
        argv = ["chown", "-h", copying.owner, *paths[start : start + 500]]
        status = await inside.run(argv, env={}, cwd="/", user="root", on_output=lambda _: None)
        if status:
            raise TemplateError(f"there is no owner {copying.owner!r}")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where things go: into a directory, the only one perhaps under another name."""

    directory: str
    renamed: str

    def name_of(self, member: tarfile.TarInfo, copying: Copying) -> str:
        """A member's name below the directory; empty for the directory itself."""
        top, name = copying.top, member.name
        if copying.is_pattern:
            return _below_pattern(name, top)
        if name == top:
            return "" if member.isdir() else self.renamed or posixpath.basename(top)
        if not top:
            return "" if name == "." else name
        return name[len(top) + 1 :] if name.startswith(f"{top}/") else ""


def _members(archive: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of an archive, judged, each with the archive as it stands then."""
    count = total = 0
    with _reading(), tarfile.open(archive, "r:*") as opened:
        while (member := opened.next()) is not None:
            count, total = count + 1, total + max(member.size, 0)
            if count > _MOST_MEMBERS or total > _MOST_BYTES:
                raise TemplateError("the files of COPY are too many or too large")
            yield opened, _judge(member)
            # It would remember all of them; typeshed does not know the attribute.
            opened.members.clear()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@contextlib.contextmanager
def _reading() -> Generator[None]:
    """Errors of an archive that is none, or is cut off."""
    try:
        yield
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        raise TemplateError(f"the files of COPY are no archive: {error}") from error


def _judge(member: tarfile.TarInfo) -> tarfile.TarInfo:
    clean = posixpath.normpath(member.name)
    parts = clean.split("/")
    if clean.startswith("/") or ".." in parts or "\0" in member.name:
        raise TemplateError(f"the files of COPY lead out of their place: {member.name[:200]!r}")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise TemplateError(f"the files of COPY hold a device: {member.name[:200]!r}")
    member.name = clean
    return member


def _is_single(archive: Path, copying: Copying) -> bool:
    """Whether one file or link is copied, not a directory or what a pattern stands for."""
    if copying.is_pattern or not copying.top:
        return False
    for _, member in _members(archive):
        if member.name == copying.top:
            return not member.isdir()
        if member.name.startswith(f"{copying.top}/"):
            return False
    raise TemplateError(f"the files of COPY do not hold {copying.source!r}")


def _below_pattern(name: str, pattern: str) -> str:
    """What a pattern stands for keeps its own name, with what is below it."""
    parts, wanted = name.split("/"), pattern.split("/")
    if "**" in wanted:
        fixed = 0
        while not _GLOB.search(wanted[fixed]):
            fixed += 1
        return "/".join(parts[fixed:])
    return "/".join(parts[len(wanted) - 1 :]) if len(parts) >= len(wanted) else ""


async def _stream(archive: Path, copying: Copying, place: _Place) -> AsyncGenerator[bytes]:
    """The archive as the agent shall unpack it, a piece at a time."""
    pieces = _pieces(archive, copying, place)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def _pieces(archive: Path, copying: Copying, place: _Place) -> Iterator[bytes]:
    names: dict[str, str] = {}  # hard links may only lead to what was copied
    for opened, member in _members(archive):
        name = place.name_of(member, copying)
        if not name:
            continue
        names[member.name] = name
        yield _head(member, name, copying, names)
        if member.isreg():
            with _reading():
                yield from _content(opened, member)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _head(member: tarfile.TarInfo, name: str, copying: Copying, names: Mapping[str, str]) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.mtime = member.type, member.mtime
    if member.isreg():
        info.type, info.size = tarfile.REGTYPE, member.size
    info.mode = int(copying.mode, 8) if copying.mode else member.mode & 0o7777
    info.linkname = member.linkname
    if member.islnk():
        info.linkname = names.get(posixpath.normpath(member.linkname), "")
        if not info.linkname:
            raise TemplateError(f"the files of COPY lead out of their place: {name[:200]!r}")
    return info.tobuf(tarfile.PAX_FORMAT)


def _content(opened: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    data = opened.extractfile(member)
    left = member.size
    while data is not None and left and (chunk := data.read(min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk
    if left:
        raise TemplateError(f"the files of COPY end within {member.name[:200]!r}")
    yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
