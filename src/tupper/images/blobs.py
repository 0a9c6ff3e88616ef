"""Reading a layer's blob: hashed as it lies there, decompressed, and hashed again.

The compression is told by the first bytes, never by the media type, which registries and builders
get wrong. Members and frames may follow each other (estargz, zstd:chunked).

Source: RFC 1952 (gzip), RFC 8878 (Zstandard), the XZ and bzip2 file formats.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from tupper.core.errors import ImageRejected
from tupper.images.tarstream import Readable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_CHUNK = 1024 * 1024
_GZIP = b"\x1f\x8b"
_SKIPPABLE = tuple(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))
DAMAGED: tuple[type[Exception], ...] = (
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
)


class HashingReader:
    """Passes bytes on and hashes them.

    Args:
        source: where they come from.
        on_bytes: told how many passed, now and then.
    """

    def __init__(self, source: Readable, on_bytes: Callable[[int], None] | None = None) -> None:
        self._source = source
        self._on_bytes = on_bytes
        self._hash = hashlib.sha256()
        self.count = 0

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes."""
        data = self._source.read(size)
        self._hash.update(data)
        self.count += len(data)
        if self._on_bytes is not None:
            self._on_bytes(self.count)
        return data

    def drain(self) -> None:
        """Read to the end, so that the hash covers everything."""
        while self.read(_CHUNK):
            pass

    @property
    def digest(self) -> str:
        """Of what was read so far."""
        return f"sha256:{self._hash.hexdigest()}"


class _Peeked:
    """A stream whose first bytes were looked at."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.head = source.read(_CHUNK)
        while len(self.head) < 8 and (more := source.read(_CHUNK)):
            self.head += more
        self._pending = self.head

    def read(self, size: int, /) -> bytes:
        if not self._pending:
            return self._source.read(size)
        data, self._pending = self._pending[:size], self._pending[size:]
        return data


def decompressed(raw: Readable) -> Readable:
    """The contents of a stream that may be compressed in one of several ways."""
    source = _Peeked(raw)
    file = cast("IO[bytes]", source)  # the decompressors ask for nothing but read()
    if source.head.startswith(_GZIP):
        return _GzipReader(source)
    if source.head.startswith((b"\x28\xb5\x2f\xfd", *_SKIPPABLE)):
        return zstd.ZstdFile(file)
    if source.head.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    if source.head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return source


class _GzipReader:
    """Members of gzip, one after the other; three times as fast as ``gzip.GzipFile``.

    zlib checks each member's CRC and length. Zero bytes after the last member are padding.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._member = zlib.decompressobj(31)
        self._input = b""
        self._started = False

    def read(self, size: int, /) -> bytes:
        while True:
            if not self._input:
                self._input = self._source.read(_CHUNK)
                if not self._input:
                    if self._started:
                        raise EOFError("compressed data ends early")
                    return b""
            if not self._started:
                self._input = self._input.lstrip(b"\0")
                if not self._input:
                    continue
                self._started = True
            data = self._member.decompress(self._input, size if size > 0 else _CHUNK)
            self._input = self._member.unconsumed_tail
            if self._member.eof:
                self._input = self._member.unused_data
                self._member = zlib.decompressobj(31)
                self._started = False
            if data:
                return data


class Blob:
    """One layer's blob on disk, checked against what the manifest says of it.

    Args:
        path: the file.
        digest: ``sha256:…`` of the file.
        size: of the file in bytes; negative if unknown.
        diff_id: ``sha256:…`` of the uncompressed archive; empty if unknown.
    """

    def __init__(self, path: Path, digest: str, size: int, diff_id: str) -> None:
        self.path = path
        self.digest = digest
        self.size = size
        self.diff_id = diff_id

    def read_through(
        self, consume: Callable[[HashingReader], None], on_bytes: Callable[[int], None]
    ) -> None:
        """Give the uncompressed bytes to ``consume``, then check every promise.

        Raises:
            ImageRejected: damaged, or not what the manifest or the configuration promises.
        """
        with self.path.open("rb", buffering=0) as file:
            outer = HashingReader(file, on_bytes)
            try:
                inner = HashingReader(decompressed(outer))
                consume(inner)
                inner.drain()
            except DAMAGED as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise ImageRejected(f"layer {self.digest} is damaged: {error}") from error
            finally:
                outer.drain()
                self._check_outer(outer)
        if self.diff_id and inner.digest != self.diff_id:
            raise ImageRejected(
                f"layer {self.digest} unpacks to {inner.digest}, the image says {self.diff_id}"
            )

    def _check_outer(self, outer: HashingReader) -> None:
        if self.size >= 0 and outer.count != self.size:
            raise ImageRejected(
                f"layer {self.digest} has {outer.count} bytes, the manifest says {self.size}"
            )
        if outer.digest != self.digest:
            raise ImageRejected(f"layer {self.digest} has the digest {outer.digest}")
