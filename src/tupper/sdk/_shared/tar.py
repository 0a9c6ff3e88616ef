"""Reading a tar stream that may be hostile: bytes in, entries and their content out. No I/O.

Understands ustar, PAX (long names, large sizes, exact times) and GNU long names. Says nothing about
whether a name is harmless: that is the business of who writes it.

Source: pax(1), POSIX.1-2017, "ustar Interchange Format" and "pax Extended Header"; tar(5).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tupper.core.errors import GuestMisbehaved

BLOCK = 512
_EXTENDED_MAX = 1024 * 1024  # bytes of an extended header
_SIZE_MAX = 2**62


class Kind(Enum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """The head of an entry; its content follows as bytes.

    Args:
        name: as it stands there; bytes that are no UTF-8 are surrogates.
        kind: what it is.
        size: bytes of content.
        mode: permission bits, set-id bits included.
        mtime: seconds.
        link: where a link leads.
    """

    name: str
    kind: Kind
    size: int
    mode: int
    mtime: float
    link: str


_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.HARDLINK,
    b"2": Kind.SYMLINK,
    b"5": Kind.DIRECTORY,
}


class TarParser:
    """Cuts a tar stream into entries. Holds at most one block and one extended header."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._content = 0  # bytes of content still to come
        self._padding = 0
        self._extended: bytearray | None = None
        self._extended_type = b""
        self._overrides: dict[str, str] = {}
        self._zeros = 0

    def feed(self, data: bytes) -> list[Entry | bytes]:
        """Take bytes; returns what they complete.

        Errors:
            GuestMisbehaved: this is no tar stream.
        """
        self._buffer += data
        out: list[Entry | bytes] = []
        while self._zeros < 2 and self._step(out):
            pass
        if self._zeros >= 2:
            self._buffer.clear()
        return out

    def close(self) -> None:
        """Say that no more bytes come.

        Errors:
            GuestMisbehaved: the stream stops in the middle.
        """
        if self._zeros < 2 or self._content or self._extended is not None:
            raise GuestMisbehaved("tar: the stream stops before its end")

    def _step(self, out: list[Entry | bytes]) -> bool:
        if self._content or self._padding:
            return self._take_content(out)
        if self._extended is not None:
            self._finish_extended()
            return True
        if len(self._buffer) < BLOCK:
            return False
        block = bytes(self._buffer[:BLOCK])
        del self._buffer[:BLOCK]
        if not any(block):
            self._zeros += 1
            return True
        self._zeros = 0
        entry = self._parse(block)
        if entry is not None:
            out.append(entry)
        return True

    def _take_content(self, out: list[Entry | bytes]) -> bool:
        if not self._buffer:
            return False
        if self._content:
            piece = bytes(self._buffer[: self._content])
            del self._buffer[: len(piece)]
            self._content -= len(piece)
            if self._extended is not None:
                self._extended += piece
            else:
                out.append(piece)
            return True
        skipped = min(self._padding, len(self._buffer))
        del self._buffer[:skipped]
        self._padding -= skipped
        return True

    def _parse(self, block: bytes) -> Entry | None:
        if _number(block[148:156], "checksum") != sum(block) - sum(block[148:156]) + 8 * 32:
            raise GuestMisbehaved("tar: a header with a wrong checksum")
        kind, size = block[156:157], _number(block[124:136], "size")
        if kind in (b"x", b"g", b"L", b"K"):
            if size > _EXTENDED_MAX:
                raise GuestMisbehaved(f"tar: an extended header of {size} bytes")
            self._expect(size)
            self._extended, self._extended_type = bytearray(), kind
            return None
        return self._entry(block, kind, size)

    def _entry(self, block: bytes, kind: bytes, size: int) -> Entry:
        overrides, self._overrides = self._overrides, {}
        name = _text(block[:100])
        if block[257:262] == b"ustar" and block[345]:
            name = f"{_text(block[345:500])}/{name}"
        found = _KINDS.get(kind, Kind.OTHER)
        size = _decimal(overrides["size"]) if "size" in overrides else size
        if found in (Kind.DIRECTORY, Kind.SYMLINK, Kind.HARDLINK):
            size = 0
        self._expect(size)
        return Entry(
            name=overrides.get("path", name),
            kind=found,
            size=size,
            mode=_number(block[100:108], "mode") & 0o7777,
            mtime=_seconds(overrides.get("mtime"), _number(block[136:148], "time")),
            link=overrides.get("linkpath", _text(block[157:257])),
        )

    def _expect(self, size: int) -> None:
        self._content, self._padding = size, -size % BLOCK

    def _finish_extended(self) -> None:
        data, self._extended = bytes(self._extended or b""), None
        if self._extended_type == b"x":
            self._overrides.update(_records(data))
        elif self._extended_type in (b"L", b"K"):
            key = "path" if self._extended_type == b"L" else "linkpath"
            self._overrides[key] = _text(data)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _number(field: bytes, what: str) -> int:
    """Octal text, or GNU's binary form for what does not fit."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:])
    else:
        text = field.strip(b" \0")
        if text.strip(b"01234567"):
            raise GuestMisbehaved(f"tar: a {what} that is no octal number")
        value = int(text or b"0", 8)
    if value > _SIZE_MAX:
        raise GuestMisbehaved(f"tar: a {what} of {value}")
    return value


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise GuestMisbehaved("tar: a size that is no number")
    return min(int(text), _SIZE_MAX)


def _seconds(text: str | None, default: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return value if -(2**53) < value < 2**53 else 0.0


def _records(data: bytes) -> dict[str, str]:
    """The records of a PAX header: length, space, key=value, newline."""
    found: dict[str, str] = {}
    while data:
        length, space, _ = data.partition(b" ")
        size = int(length) if length.isdigit() and len(length) < 8 else 0
        if not space or not len(length) + 3 <= size <= len(data) or data[size - 1 : size] != b"\n":
            raise GuestMisbehaved("tar: a damaged extended header")
        key, _, value = data[len(length) + 1 : size - 1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        data = data[size:]
    return found
