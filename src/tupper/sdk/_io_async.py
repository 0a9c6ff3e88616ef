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
from dataclasses import dataclass
from typing import TypeVar

import httpcore2
import httpx2

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
from tupper.sdk._unix_async import Sockets

T = TypeVar("T")
Body = bytes | AsyncIterable[bytes] | None
CLEANUP_S = 15.0
REPLY_GRACE_S = 2.0

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
        self._kept: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = (
            weakref.WeakKeyDictionary()
        )

    async def open(self, ask: Ask, body: Body = None) -> Reply:
        """Send a request and return when the head of the answer is there."""
        return await self._open((await self._keep()).client, ask, body)

    async def _open(self, client: httpx2.AsyncClient, ask: Ask, body: Body) -> Reply:
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
        kept = await self._keep()
        kept.calls += 1
        try:
            async with asyncio.timeout(ask.timeout_s):
                reply = await self._open(kept.client, ask, body)
                try:
                    return Answer(reply.status, reply.headers, await reply.read_all(limit))
                finally:
                    await reply.close()
        except TimeoutError as error:
            raise LinkError(Trouble.SILENT, f"no answer within {ask.timeout_s:g} s") from error
        finally:
            kept.calls -= 1
            if kept.is_left and not kept.calls:
                await kept.keeper.aclose()

    async def close(self) -> None:
        """Close the connections of the running loop; calls under way get their answer first.

        The object can be used again.
        """
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            kept.is_left = True
            if not kept.calls:
                await kept.keeper.aclose()

    async def _keep(self) -> _Kept:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._kept = weakref.WeakKeyDictionary()
        kept = self._kept.get(loop)
        if kept is None:
            client = _make_client(self.origin)
            kept = self._kept[loop] = _Kept(client, _keeper(client))
            await anext(kept.keeper)
        return kept


@dataclass(slots=True)
class _Kept:
    """The connections of one loop.

    Attributes:
        keeper: closes them when it ends, at the latest with the loop.
        calls: how many wait for their answers.
        is_left: no call begins any more; the last one closes them.
    """

    client: httpx2.AsyncClient
    keeper: AsyncGenerator[None]
    calls: int = 0
    is_left: bool = False


async def _keeper(client: httpx2.AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            await client.aclose()


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
                network_backend=Sockets(),
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
