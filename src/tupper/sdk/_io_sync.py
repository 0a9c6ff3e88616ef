"""The sync half's hands: HTTP, sleeping, threads. Hand-written; the twin of ``_io_async``.

Everything here may be used by several threads at once. Connections close when their ``Http`` is
collected.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar, cast

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

T = TypeVar("T")
Body = bytes | Iterable[bytes] | None
CLEANUP_S = 15.0
REPLY_GRACE_S = 2.0
READ_BYTES = 256 * 1024

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
        self._client_of: tuple[int, httpx2.Client] | None = None

    def open(self, ask: Ask, body: Body = None) -> Reply:
        """Send a request and return when the head of the answer is there."""
        client = self._client()
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
        reply = self.open(ask, body)
        try:
            return Answer(reply.status, reply.headers, reply.read_all(limit))
        finally:
            reply.close()

    def close(self) -> None:
        """Close the connections. The object can be used again."""
        with self._lock:
            kept, self._client_of = self._client_of, None
        if kept is not None:
            kept[1].close()

    def _client(self) -> httpx2.Client:
        with self._lock:
            if self._client_of is None or self._client_of[0] != os.getpid():
                client = _make_client(self.origin)
                self._client_of = (os.getpid(), client)
                weakref.finalize(self, client.close).atexit = False
            return self._client_of[1]


class _Stream(httpcore2.NetworkStream):
    """A unix socket as httpcore2 wants it. Reads larger pieces than that asks for.

    Args:
        connection: connected.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end."""
        with _socket_errors(httpcore2.ReadTimeout, httpcore2.ReadError):
            self._socket.settimeout(timeout)
            return self._socket.recv(max(max_bytes, READ_BYTES))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it; the time limit is one of silence."""
        view = memoryview(buffer)
        with _socket_errors(httpcore2.WriteTimeout, httpcore2.WriteError):
            self._socket.settimeout(timeout)
            while view:
                view = view[self._socket.send(view) :]

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def get_extra_info(self, info: str) -> object:
        """``socket``, and whether it is ``is_readable``: then an idle one was closed."""
        if info == "is_readable":
            return bool(select([self._socket], 0.0))
        return self._socket if info == "socket" else None


@contextlib.contextmanager
def _socket_errors(timeout: type[Exception], broken: type[Exception]) -> Generator[None]:
    try:
        yield
    except TimeoutError as error:
        raise timeout(str(error)) from error
    except (OSError, ValueError) as error:
        raise broken(str(error)) from error


def select(connections: list[socket.socket], timeout_s: float) -> list[socket.socket]:
    """Those that can be read now; works for any descriptor number."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            if connection.fileno() < 0:
                return connections
            selector.register(connection, selectors.EVENT_READ)
        return [cast("socket.socket", key.fileobj) for key, _ in selector.select(timeout_s)]


# Nothing tells when there is room again.
_QUEUE_PAUSE_S = 0.005


def _connect(connection: socket.socket, path: str, timeout_s: float | None) -> None:
    """Connect; wait while the other side's queue is full, which Python takes for a refusal.

    Source: connect(2), EAGAIN of a unix socket.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError("too many connections wait there already") from None
            time.sleep(_QUEUE_PAUSE_S)


class _Sockets(httpcore2.SyncBackend):
    """Connects to unix sockets; one that refuses leaves no open descriptor behind.

    Source: httpcore2 2.16.2 leaves the socket to the garbage collector, which warns about it.
    """

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect, or close and fail."""
        del socket_options
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            _connect(connection, path, timeout)
        except TimeoutError as error:
            connection.close()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            connection.close()
            raise httpcore2.ConnectError(str(error)) from error
        return _Stream(connection)


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
                network_backend=_Sockets(),
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
