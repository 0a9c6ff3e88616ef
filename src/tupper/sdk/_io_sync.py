"""The sync half's hands: HTTP, sleeping, threads. Hand-written; the twin of ``_io_async``.

Everything here may be used by several threads at once. Connections close when their ``Http`` is
collected.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
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
from tupper.sdk._unix_sync import Sockets

T = TypeVar("T")
Body = bytes | Iterable[bytes] | None
CLEANUP_S = 15.0
REPLY_GRACE_S = 2.0

sleep = time.sleep
Lock = threading.Lock


class Reply:
    """An answer whose body is read as it comes.

    Args:
        response: of httpx2, not yet read.
        owner: kept alive as long as the answer, since its connections close with it.
    """

    def __init__(self, response: httpx2.Response, owner: Http) -> None:
        self._response = response
        self._owner = owner
        self._chunks = response.iter_raw()
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    def read(self) -> bytes:
        """The next bytes; empty at the end.

        Errors:
            LinkError: the connection broke, or nothing came in the time of the request.
        """
        with _translated():
            try:
                return next(self._chunks, b"")
            except httpx2.StreamError as error:
                raise LinkError(Trouble.BROKEN, "closed") from error

    def read_all(self, limit: int = BODY_MAX) -> bytes:
        """The rest of the body, at most ``limit`` bytes."""
        parts: list[bytes] = []
        size = 0
        while chunk := self.read():
            size += len(chunk)
            if size > limit:
                raise LinkError(Trouble.BROKEN, f"an answer of more than {limit} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def close(self) -> None:
        """Give the connection back, or end it where the body was not read to its end."""
        with contextlib.suppress(httpx2.HTTPError, OSError, RuntimeError):
            self._response.close()

    def abort(self) -> None:
        """End the connection from another thread: a read that waits ends at once."""
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Http:
    """HTTP to one origin. May be used by several threads, and after a fork.

    Args:
        origin: the server.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def open(self, ask: Ask, body: Body = None) -> Reply:
        """Send a request and return when the head of the answer is there."""
        with self._lock:
            kept = self._keep()
        return self._open(kept.client, ask, body)

    def _open(self, client: httpx2.Client, ask: Ask, body: Body) -> Reply:
        request = client.build_request(
            ask.method,
            self.origin.url + ask.path,
            params=dict(ask.query) or None,
            headers=dict(ask.headers),
            content=body,
            timeout=httpx2.Timeout(ask.timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        with _translated():
            return Reply(client.send(request, stream=True), self)

    def call(self, ask: Ask, body: Body = None, *, limit: int = BODY_MAX) -> Answer:
        """Send a request and return the whole answer."""
        with self._lock:
            kept = self._keep()
            kept.calls += 1
        try:
            reply = self._open(kept.client, ask, body)
            try:
                return Answer(reply.status, reply.headers, reply.read_all(limit))
            finally:
                reply.close()
        finally:
            with self._lock:
                kept.calls -= 1
                is_last = kept.is_left and not kept.calls
            if is_last:
                kept.client.close()

    def close(self) -> None:
        """Close the connections; calls under way get their answer first.

        The object can be used again.
        """
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is None:
                return
            kept.is_left = True
            is_idle = not kept.calls
        if is_idle:
            kept.client.close()

    def _keep(self) -> _Kept:
        if self._kept is None or self._kept.pid != os.getpid():
            client = _make_client(self.origin)
            self._kept = _Kept(client, os.getpid())
            weakref.finalize(self, client.close).atexit = False
        return self._kept


@dataclass(slots=True)
class _Kept:
    """The connections of one process.

    Attributes:
        pid: whose.
        calls: how many wait for their answers.
        is_left: no call begins any more; the last one closes them.
    """

    client: httpx2.Client
    pid: int
    calls: int = 0
    is_left: bool = False


class _LocalTransport(httpx2.HTTPTransport):
    """httpx2's transport, with our way to connect."""

    def __init__(self, *, uds: str | None, verify: bool, limits: httpx2.Limits) -> None:
        super().__init__(uds=uds, verify=verify, limits=limits)
        if uds is not None:
            self._pool = httpcore2.ConnectionPool(
                max_connections=limits.max_connections,
                max_keepalive_connections=limits.max_keepalive_connections,
                keepalive_expiry=limits.keepalive_expiry,
                uds=uds,
                network_backend=Sockets(),
            )


def _make_client(origin: Origin) -> httpx2.Client:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60)
    if origin.is_local:
        transport = _LocalTransport(uds=origin.socket or None, verify=False, limits=limits)
        return httpx2.Client(transport=transport, headers=origin.headers, trust_env=False)
    return httpx2.Client(
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


def tell(handler: Callable[[T], object] | None, what: T) -> None:
    """Call a handler of the user's, if there is one."""
    if handler is not None:
        handler(what)


def read_pieces(source: Readable, size: int) -> Iterator[bytes]:
    """The bytes of a file object; text is encoded as UTF-8."""
    while piece := source.read(size):
        yield piece.encode() if isinstance(piece, str) else piece


def iterate(source: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of an iterable."""
    for piece in source:
        yield as_bytes(piece)


def in_thread(function: Callable[[], T]) -> T:
    """Run something that blocks. Here that is just a call."""
    return function()


def to_end(value: T) -> T:
    """The twin of an await that cannot be cancelled; the work is done when this is called."""
    return value


def guarded(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Make something that must not be left behind when we are interrupted while it is made.

    It is made in a thread of its own, so that Ctrl-C does not tear its connection. The interrupted
    caller waits ``REPLY_GRACE_S`` for the answer and undoes it; a later one is undone by that
    thread, and if the process ends before, the server sees the connection close.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller
            future.set_exception(error)

    threading.Thread(target=work, name="tupper-create", daemon=True).start()
    try:
        return future.result()
    except BaseException:
        _take_back(future, undo)
        raise


def _take_back(future: Future[T], undo: Callable[[T], object]) -> None:
    def undo_result(done: Future[T]) -> None:
        with contextlib.suppress(Exception):
            undo(done.result())

    with contextlib.suppress(BaseException):
        wait([future], REPLY_GRACE_S)
    future.add_done_callback(undo_result)
