"""How the async half talks to unix sockets; its twin is ``_unix_sync``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import httpcore2

from tupper.core.sockets import connect_socket
from tupper.sdk._unix_sync import READ_BYTES, mapped, select


class _Protocol(asyncio.StreamReaderProtocol):
    """A connection that keeps its writer for as long as the loop has it.

    A writer that is collected in a cycle, together with the client that would have closed it in a
    moment, would warn that nobody did.
    """

    writer: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a unix socket."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
        protocol = cls(reader, loop=loop)
        connection = await connect_socket(path)
        try:
            transport, _ = await loop.create_unix_connection(lambda: protocol, sock=connection)
        except BaseException:
            connection.close()
            raise
        protocol.writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return reader, protocol.writer

    def connection_lost(self, exc: Exception | None) -> None:
        """The loop lets go of it."""
        super().connection_lost(exc)
        self.writer = None


class _Stream(httpcore2.AsyncNetworkStream):
    """A unix socket as httpcore2 wants it. Reads larger pieces than that asks for.

    Args:
        reader, writer: connected.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end."""
        with mapped(httpcore2.ReadTimeout, httpcore2.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max(max_bytes, READ_BYTES))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it; returns when there is room for more."""
        with mapped(httpcore2.WriteTimeout, httpcore2.WriteError):
            self._writer.write(buffer)
            async with asyncio.timeout(timeout):
                await self._writer.drain()

    async def aclose(self) -> None:
        """Close it; what was not sent yet is not sent any more."""
        self._writer.transport.abort()

    def get_extra_info(self, info: str) -> object:
        """``socket``, and whether it is ``is_readable``: then an idle one was closed."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        if info == "is_readable":  # also what the loop has not looked at yet
            return self._reader.at_eof() or bool(select([connection], 0.0))
        return connection if info == "socket" else None


class Sockets(httpcore2.AsyncNetworkBackend):
    """Connects to unix sockets; waits without work while the queue of one is full.

    Source: anyio 4.16 tries again in every round of the loop, and leaves the socket open when it is
    cancelled meanwhile; asyncio itself takes the full queue for a connection.
    """

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect; waits while too many others do."""
        del socket_options
        with mapped(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            async with asyncio.timeout(timeout):
                return _Stream(*await _Protocol.open(path))

    async def sleep(self, seconds: float) -> None:
        """Between attempts."""
        await asyncio.sleep(seconds)
