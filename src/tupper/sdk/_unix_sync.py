"""How the sync half talks to unix sockets; the twin of ``_unix_async``."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import time
from collections.abc import Generator, Iterable
from typing import cast

import httpcore2

READ_BYTES = 256 * 1024


class _Stream(httpcore2.NetworkStream):
    """A unix socket as httpcore2 wants it. Reads larger pieces than that asks for.

    Args:
        connection: connected.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end."""
        with mapped(httpcore2.ReadTimeout, httpcore2.ReadError):
            self._socket.settimeout(timeout)
            return self._socket.recv(max(max_bytes, READ_BYTES))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it; the time limit is one of silence."""
        view = memoryview(buffer)
        with mapped(httpcore2.WriteTimeout, httpcore2.WriteError):
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
def mapped(timeout: type[Exception], broken: type[Exception]) -> Generator[None]:
    """Errors of a socket as those that httpcore2 has for what was tried."""
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


class Sockets(httpcore2.SyncBackend):
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
        with mapped(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            try:
                connection.settimeout(timeout)
                _connect(connection, path, timeout)
            except BaseException:
                connection.close()
                raise
        return _Stream(connection)
