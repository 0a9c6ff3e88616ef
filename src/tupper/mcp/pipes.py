"""Standard input and output of a server, read and written by its event loop.

The SDK does both in threads: a message and its answer then wait three times until the system lets
another thread run, which on a busy machine is most of what a short call takes. Pipes and sockets,
which clients use, need none. What else there may be (a file, a terminal, whose state other programs
share) is left to the SDK.

While it lasts, descriptor 0 is empty and descriptor 1 leads to standard error, so that nothing else
in this process reads or writes between messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
from collections.abc import AsyncGenerator, Generator
from typing import Literal, cast

import anyio

_LINE_MAX = 1 << 30  # bytes; a message is as long as its client makes it


class _Lines:
    """Lines of a stream as text; what is no UTF-8 becomes U+FFFD."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._stream.readline()
        if not line:
            raise StopAsyncIteration
        return line.decode(errors="replace")


class _Writer:
    """Takes text. A client that is gone takes none; the end of its input ends the server."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    async def write(self, text: str) -> None:
        self._stream.write(text.encode())

    async def flush(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._stream.drain()


Streams = tuple["anyio.AsyncFile[str]", "anyio.AsyncFile[str]"]


def are_pipes() -> bool:
    """Whether a loop can serve standard input and output without a thread."""
    if os.name != "posix":
        return False
    modes = [os.fstat(number).st_mode for number in (0, 1)]
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


@contextlib.asynccontextmanager
async def standard_streams() -> AsyncGenerator[Streams]:
    """Standard input and output, in the form that the SDK takes them."""
    loop = asyncio.get_running_loop()
    with _taken(0, "rb") as source, _taken(1, "wb") as target:
        reader = asyncio.StreamReader(limit=_LINE_MAX)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, target)
        writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
        try:
            yield cast("Streams", (_Lines(reader), _Writer(writer)))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        finally:
            incoming.close()
            outgoing.close()


@contextlib.contextmanager
def _taken(number: int, mode: Literal["rb", "wb"]) -> Generator[io.FileIO]:
    """A descriptor under another number, while nothing else comes to it under its own."""
    kept, ours = os.dup(number), os.fdopen(os.dup(number), mode, buffering=0)
    other = os.open(os.devnull, os.O_RDONLY) if mode == "rb" else os.dup(2)
    os.dup2(other, number)
    os.close(other)
    try:
        yield ours
    finally:
        os.dup2(kept, number)
        os.close(kept)
