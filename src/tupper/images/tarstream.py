"""Reading a tar archive from a hostile stream.

The standard library's reader ends silently at a damaged header and reads extension headers of any
size into memory; a layer comes from a stranger, so this one does neither. It understands ustar,
PAX (local and global), GNU long names, GNU base-256 numbers, and sparse files as PAX 1.0 and old
GNU write them.

**Use**: iterate; each :class:`Entry` may be read with :meth:`TarStream.data` before the next one
is asked for. What is not read is skipped.

**Errors**: everything that is not a tar archive, or is cut short, is
:class:`~tupper.core.errors.ImageRejected`.

Source: POSIX.1-2017 pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar manual,
"Basic Tar Format" and "Storing Sparse Files".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tupper.core.errors import ImageRejected

BLOCK = 512
CHUNK = 256 * 1024
EXTENSION_MAX = 1024 * 1024  # Linux takes 64 KiB of xattrs and 4 KiB of name a file
SPARSE_MAX = 1_000_000
_ZERO = bytes(BLOCK)
_FIELDS = struct.Struct("100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12s")


class Readable(Protocol):
    """The only thing that is asked of a stream."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        ...


@dataclass(slots=True)
class Entry:
    """One member of an archive.

    Args:
        name: as written, bytes, without decoding.
        kind: the type flag, one character.
        link: the target of a link.
        mode, uid, gid: as written.
        mtime_ns: nanoseconds since 1970.
        size: bytes in the archive.
        device: (major, minor) of a device node.
        pax: the extended attributes that apply, key → raw value.
        sparse: (offset, length) of the pieces that are present; None for an ordinary file.
        real_size: the size of the file, with its holes.
    """

    name: bytes
    kind: str
    link: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int
    device: tuple[int, int]
    pax: dict[str, bytes] = field(default_factory=dict[str, bytes])
    sparse: list[tuple[int, int]] | None = None
    real_size: int = 0


class TarStream:
    """The members of a tar archive, in order.

    Args:
        stream: the uncompressed archive.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0  # bytes of the present member that were not read
        self._padding = 0
        self._globals: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Yield the members until the end-of-archive blocks, or the end of the stream."""
        pax: dict[str, bytes] = {}
        while (block := self._next_block()) is not None:
            entry = _parse_header(block)
            self._start_data(entry.size)
            if entry.kind in "xgLK":
                self._extend(entry, pax)
                continue
            _apply_pax(entry, self._globals | pax)
            pax = {}
            self._start_data(entry.size)
            self._read_sparse_map(entry, block)
            yield entry

    def data(self) -> Iterator[bytes]:
        """The bytes of the present member, as stored (sparse pieces one after the other)."""
        while self._left:
            yield self._take(min(CHUNK, self._left))

    def _start_data(self, size: int) -> None:
        self._left = size
        self._padding = -size % BLOCK

    def _next_block(self) -> bytes | None:
        for _ in self.data():
            pass
        self._exactly(self._padding)
        self._padding = 0
        block = self._stream_read(BLOCK)
        if not block or block == _ZERO:
            return None
        if len(block) < BLOCK:
            raise ImageRejected("the layer is cut short inside a tar header")
        return block

    def _stream_read(self, size: int) -> bytes:
        """Exactly ``size`` bytes unless the stream ends."""
        data = self._stream.read(size)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := self._stream.read(missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        data = self._stream_read(size) if size else b""
        if len(data) != size:
            raise ImageRejected("the layer is cut short")
        return data

    def _take(self, size: int) -> bytes:
        self._left -= size
        return self._exactly(size)

    def _extend(self, entry: Entry, pax: dict[str, bytes]) -> None:
        """Take in an extension header, which describes the member after it."""
        if entry.size > EXTENSION_MAX:
            raise ImageRejected(f"a tar extension header of {entry.size} bytes")
        data = self._take(entry.size)
        match entry.kind:
            case "x":
                pax.update(_parse_pax(data))
            case "g":
                self._globals.update(_parse_pax(data))
            case "L":
                pax["path"] = data.rstrip(b"\0")
            case _:
                pax["linkpath"] = data.rstrip(b"\0")

    def _read_sparse_map(self, entry: Entry, block: bytes) -> None:
        if entry.kind == "S":
            entry.kind = "0"
            self._read_gnu_sparse(entry, block)
        elif entry.pax.get("GNU.sparse.major") == b"1":
            self._read_pax_sparse(entry)
        elif any(key.startswith("GNU.sparse.") for key in entry.pax):
            raise ImageRejected(f"{_show(entry.name)}: this sparse format is not supported")
        if entry.sparse is not None:
            _check_sparse(entry, self._left)

    def _read_gnu_sparse(self, entry: Entry, block: bytes) -> None:
        """Four pieces in the header, 21 in each extension block; their numbers are octal."""
        entry.sparse = []
        entry.real_size = _parse_number(block[483:495])
        table, more = block[386:482], block[482]
        while True:
            for at in range(0, len(table) - 23, 24):
                if table[at] == 0:
                    break
                piece = (
                    _parse_number(table[at : at + 12]),
                    _parse_number(table[at + 12 : at + 24]),
                )
                entry.sparse.append(piece)
            if not more or len(entry.sparse) > SPARSE_MAX:
                return
            extension = self._exactly(BLOCK)
            table, more = extension[:504], extension[504]

    def _read_pax_sparse(self, entry: Entry) -> None:
        """The map comes first in the data: decimal numbers, one a line, padded to a block."""
        entry.name = entry.pax.get("GNU.sparse.name", entry.name)
        entry.real_size = _parse_decimal(entry.pax.get("GNU.sparse.realsize", b"0"))
        buffer = bytearray()
        numbers: list[int] = []
        wanted = 1
        while len(numbers) < wanted:
            if self._left < BLOCK or wanted > 2 * SPARSE_MAX:
                raise ImageRejected(f"{_show(entry.name)}: a damaged sparse map")
            buffer += self._take(BLOCK)
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            numbers += [_parse_decimal(line) for line in lines if len(numbers) < wanted and line]
            wanted = 1 + 2 * numbers[0] if numbers else 1
        pairs = numbers[1:wanted]
        entry.sparse = list(zip(pairs[::2], pairs[1::2], strict=True))


def _check_sparse(entry: Entry, stored: int) -> None:
    """Pieces must rise, lie inside the file, and add up to what is stored."""
    end = 0
    for offset, length in entry.sparse or ():
        if offset < end or length < 0:
            raise ImageRejected(f"{_show(entry.name)}: a damaged sparse map")
        end = offset + length
    total = sum(length for _, length in entry.sparse or ())
    if end > entry.real_size or total != stored:
        raise ImageRejected(f"{_show(entry.name)}: a damaged sparse map")


def _parse_header(block: bytes) -> Entry:
    fields = _FIELDS.unpack(block)
    name, mode, uid, gid, size, mtime, checksum, kind, link, magic = fields[:10]
    expected = sum(block) - sum(block[148:156]) + 8 * 32
    if _parse_number(checksum) != expected:
        raise ImageRejected("not a tar header: its checksum does not match")
    name = name.split(b"\0", 1)[0]
    prefix = fields[15].split(b"\0", 1)[0]
    # GNU tar writes "ustar " and uses the place of the prefix for times.
    if magic == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    flag = kind.decode("latin-1")
    if flag in "\0 7":
        flag = "5" if name.endswith(b"/") else "0"
    device = (0, 0)
    if flag in "34":
        device = (_parse_number(fields[13]), _parse_number(fields[14]))
    bytes_stored = _parse_number(size)
    if bytes_stored < 0:
        raise ImageRejected(f"{_show(name)}: a negative size")
    return Entry(
        name=name,
        kind=flag,
        link=link.split(b"\0", 1)[0],
        mode=_parse_number(mode) & 0o7777,
        uid=_parse_number(uid),
        gid=_parse_number(gid),
        mtime_ns=_parse_number(mtime) * 1_000_000_000,
        # Links and directories have no data, whatever some writers say.
        size=0 if flag in "12345" and flag != "1" else bytes_stored,
        device=device,
    )


def _parse_number(raw: bytes) -> int:
    """Octal text, or base-256 with the top bit set (GNU)."""
    if raw[0] & 0x80:
        value = int.from_bytes(raw, "big") & ((1 << (8 * len(raw) - 1)) - 1)
        return value - (1 << (8 * len(raw) - 1)) if raw[0] & 0x40 else value
    text = raw.split(b"\0", 1)[0].strip()
    try:
        return int(text, 8) if text else 0
    except ValueError:
        raise ImageRejected(f"not a number in a tar header: {text[:12]!r}") from None


def _parse_decimal(raw: bytes) -> int:
    if not raw.isdigit() or len(raw) > 20:
        raise ImageRejected(f"not a number in a tar extension header: {raw[:24]!r}")
    return int(raw)


def _parse_pax(data: bytes) -> dict[str, bytes]:
    """Records of ``LENGTH KEY=VALUE`` and a newline; a value may hold anything, newlines too."""
    out: dict[str, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 12)
        length = _parse_decimal(data[at:space]) if space > 0 else 0
        record = data[space + 1 : at + length]
        key, equals, value = record[:-1].partition(b"=")
        if not equals or not record.endswith(b"\n") or at + length > len(data):
            raise ImageRejected("a damaged tar extension header")
        out[key.decode("utf-8", "surrogateescape")] = value
        at += length
    return out


def _apply_pax(entry: Entry, pax: dict[str, bytes]) -> None:
    entry.pax = pax
    entry.name = pax.get("path", entry.name)
    entry.link = pax.get("linkpath", entry.link)
    if "size" in pax:
        entry.size = _parse_decimal(pax["size"])
    if "uid" in pax:
        entry.uid = _parse_decimal(pax["uid"])
    if "gid" in pax:
        entry.gid = _parse_decimal(pax["gid"])
    if "mtime" in pax:
        entry.mtime_ns = _parse_time(pax["mtime"])
    entry.real_size = entry.size


def _parse_time(raw: bytes) -> int:
    whole, _, fraction = raw.partition(b".")
    sign = -1 if whole.startswith(b"-") else 1
    nanoseconds = _parse_decimal((fraction or b"0")[:9].ljust(9, b"0"))
    return sign * (_parse_decimal(whole.lstrip(b"-")) * 1_000_000_000 + nanoseconds)


def _show(name: bytes) -> str:
    return name[:200].decode("utf-8", "backslashreplace")
