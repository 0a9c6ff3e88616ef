"""Bodies of uploads, from whatever the caller has."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import cast

from tupper.sdk._io_async import Body, in_thread, iterate, read_pieces
from tupper.sdk._shared.errors import InvalidArgumentException
from tupper.sdk._shared.tree import TreeReader
from tupper.sdk._shared.types import AsyncWriteData, Readable

PIECE = 1024 * 1024


def render_body(data: AsyncWriteData) -> Body:
    """The body of an upload.

    Errors:
        InvalidArgumentException: nothing that can be sent.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    if isinstance(data, Readable):
        return read_pieces(data, PIECE)
    return iterate(checked(data))


def checked(data: object) -> AsyncIterable[bytes]:
    """The data, if it can be iterated over."""
    if not isinstance(data, AsyncIterable | Iterable):
        raise InvalidArgumentException(f"data of type {type(data).__name__} cannot be written")
    return cast("AsyncIterable[bytes]", data)


def compressed(body: Body) -> Body:
    """A body, compressed."""
    if body is None or isinstance(body, bytes):
        return gzip.compress(body or b"", 1)
    return _zipped(body)


async def _zipped(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A body, compressed as it goes."""
    codec = zlib.compressobj(1, wbits=31)
    async for piece in body:
        if out := codec.compress(piece):
            yield out
    yield codec.flush()


async def tree_pieces(tree: TreeReader) -> AsyncIterator[bytes]:
    """A directory as the body of an upload."""
    while piece := await in_thread(tree.read):
        yield piece
