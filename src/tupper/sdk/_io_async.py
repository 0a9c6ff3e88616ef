"""The async half's hands: HTTP, sleeping, tasks, shielded clean-up. Hand-written.

Its twin is ``_io_sync``; the generated half imports that one under the same names.

Clients of httpx2 belong to one event loop. :class:`Http` therefore keeps one per loop, and beside
each an async generator that is suspended inside it: when the loop shuts its generators down
(``asyncio.run`` does), or when the ``Http`` is collected, the generator closes the client. So
nobody has to close anything, and no socket outlives its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from typing import TypeVar

import httpcore2
import httpx2

from tupper.core.sockets import connect_socket
from tupper.sdk._io_sync import select
from tupper.sdk._shared.errors import as_bytes
from tupper.sdk._shared.link import (
    BODY_MAX,
    CONNECT_TIMEOUT_S,
    Answer,
    Ask,
    LinkError,
    Origin,
    Trouble,
)
from tupper.sdk._shared.types import Readable

T = TypeVar("T")
Body = bytes | AsyncIterable[bytes] | None
CLEANUP_S = 15.0
REPLY_GRACE_S = 2.0
READ_BYTES = 256 * 1024

sleep = asyncio.sleep
Lock = asyncio.Lock


class Reply:
    """An answer whose body is read as it comes.

    Args:
        response: of httpx2, not yet read.
        owner: kept alive as long as the answer, since its connections close with it.
    """

    def __init__(self, response: httpx2.Response, owner: Http) -> None:
        self._response = response
        self._owner = owner
        self._chunks = response.aiter_raw()
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        """The next bytes; empty at the end.

        Errors:
            LinkError: the connection broke, or nothing came in the time of the request.
        """
        with _translated():
            try:
                return await anext(self._chunks)
            except StopAsyncIteration:
                return b""
            except httpx2.StreamError as error:
                raise LinkError(Trouble.BROKEN, "closed") from error

    async def read_all(self, limit: int = BODY_MAX) -> bytes:
        """The rest of the body, at most ``limit`` bytes."""
        parts: list[bytes] = []
        size = 0
        while chunk := await self.read():
            size += len(chunk)
            if size > limit:
                raise LinkError(Trouble.BROKEN, f"an answer of more than {limit} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def close(self) -> None:
        """Give the connection back, or end it where the body was not read to its end."""
        with contextlib.suppress(httpx2.HTTPError, OSError, RuntimeError):
            await self._response.aclose()


class Http:
    """HTTP to one origin. May be used by several tasks and event loops, and after a fork.

    Args:
        origin: the server.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._pid = os.getpid()
        self._kept: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[httpx2.AsyncClient, AsyncGenerator[None]]
        ] = weakref.WeakKeyDictionary()

    async def open(self, ask: Ask, body: Body = None) -> Reply:
        """Send a request and return when the head of the answer is there."""
        client = await self._client()
        request = client.build_request(
            ask.method,
            self.origin.url + ask.path,
            params=dict(ask.query) or None,
            headers=dict(ask.headers),
            content=body,
            timeout=httpx2.Timeout(ask.timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        with _translated():
            return Reply(await client.send(request, stream=True), self)

    async def call(self, ask: Ask, body: Body = None, *, limit: int = BODY_MAX) -> Answer:
        """Send a request and return the whole answer."""
        try:
            async with asyncio.timeout(ask.timeout_s):
                reply = await self.open(ask, body)
                try:
                    return Answer(reply.status, reply.headers, await reply.read_all(limit))
                finally:
                    await reply.close()
        except TimeoutError as error:
            raise LinkError(Trouble.SILENT, f"no answer within {ask.timeout_s:g} s") from error

    async def close(self) -> None:
        """Close the connections of the running loop. The object can be used again."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept[1].aclose()

    async def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._kept = weakref.WeakKeyDictionary()
        kept = self._kept.get(loop)
        if kept is None:
            client = _make_client(self.origin)
            keeper = _keep(client)
            kept = self._kept[loop] = (client, keeper)
            await anext(keeper)
        return kept[0]


async def _keep(client: httpx2.AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            await client.aclose()


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
        with _socket_errors(httpcore2.ReadTimeout, httpcore2.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max(max_bytes, READ_BYTES))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it; returns when there is room for more."""
        with _socket_errors(httpcore2.WriteTimeout, httpcore2.WriteError):
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


@contextlib.contextmanager
def _socket_errors(timeout: type[Exception], broken: type[Exception]) -> Generator[None]:
    try:
        yield
    except TimeoutError as error:
        raise timeout(str(error)) from error
    except OSError as error:
        raise broken(str(error)) from error


class _Sockets(httpcore2.AsyncNetworkBackend):
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
        with _socket_errors(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            async with asyncio.timeout(timeout):
                return _Stream(*await _Protocol.open(path))

    async def sleep(self, seconds: float) -> None:
        """Between attempts."""
        await asyncio.sleep(seconds)


class _LocalTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport, with our way to connect."""

    def __init__(self, *, uds: str | None, verify: bool, limits: httpx2.Limits) -> None:
        super().__init__(uds=uds, verify=verify, limits=limits)
        if uds is not None:
            self._pool = httpcore2.AsyncConnectionPool(
                max_connections=limits.max_connections,
                max_keepalive_connections=limits.max_keepalive_connections,
                keepalive_expiry=limits.keepalive_expiry,
                uds=uds,
                network_backend=_Sockets(),
            )


def _make_client(origin: Origin) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60)
    if origin.is_local:
        transport = _LocalTransport(uds=origin.socket or None, verify=False, limits=limits)
        return httpx2.AsyncClient(transport=transport, headers=origin.headers, trust_env=False)
    return httpx2.AsyncClient(
        proxy=origin.proxy or None, limits=limits, headers=origin.headers, trust_env=True
    )


@contextlib.contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise LinkError(Trouble.REFUSED, str(error)) from error
    except httpx2.TimeoutException as error:
        raise LinkError(Trouble.SILENT, str(error) or "no bytes in time") from error
    except httpx2.TransportError as error:
        raise LinkError(Trouble.BROKEN, str(error) or type(error).__name__) from error


async def tell(
    handler: Callable[[T], None] | Callable[[T], Awaitable[None]] | None, what: T
) -> None:
    """Call a handler of the user's, if there is one, and wait for it."""
    if handler is not None:
        outcome = handler(what)
        if outcome is not None:
            await outcome


async def read_pieces(source: Readable, size: int) -> AsyncIterator[bytes]:
    """The bytes of a file object; text is encoded as UTF-8. Reads in a thread."""
    while piece := await asyncio.to_thread(source.read, size):
        yield piece.encode() if isinstance(piece, str) else piece


async def iterate(source: AsyncIterable[bytes] | Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces of either kind of iterable."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield as_bytes(piece)
    else:
        for piece in source:
            yield as_bytes(piece)


async def in_thread(function: Callable[[], T]) -> T:
    """Run something that blocks without blocking the loop."""
    return await asyncio.to_thread(function)


async def to_end(awaitable: Awaitable[T]) -> T:
    """Await something to its end even if we are cancelled meanwhile, however often.

    The cancellation is raised afterwards. The thing must have a deadline of its own.
    """
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # noqa: BLE001, S112 - task.result() raises it below
            continue
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


async def guarded(make: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[object]]) -> T:
    """Make something that must not be left behind when we are cancelled while it is made.

    A cancelled caller waits ``REPLY_GRACE_S`` for the answer and undoes it; if none has come, the
    connection is closed, on which the server gives the request up.
    """
    task = asyncio.ensure_future(make())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await to_end(_take_back(task, undo))
        raise


async def _take_back(task: asyncio.Future[T], undo: Callable[[T], Awaitable[object]]) -> None:
    await asyncio.wait([task], timeout=REPLY_GRACE_S)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=REPLY_GRACE_S)
    if task.done() and not task.cancelled() and task.exception() is None:
        await asyncio.wait_for(undo(task.result()), CLEANUP_S)
