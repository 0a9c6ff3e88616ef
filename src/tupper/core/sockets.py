"""Connecting to a unix socket whose queue of waiting connections may be full.

asyncio takes "try again" for "will be connected soon", as it is with TCP, waits until the socket
can be written to, which an unconnected one can, and returns a connection that is none.

Source: connect(2), EAGAIN: "for nonblocking UNIX domain sockets … the connection cannot be
completed immediately"; unix(7). asyncio, selector_events.py, ``_sock_connect``.
"""

from __future__ import annotations

import asyncio
import socket

# Nothing tells when there is room again.
_PAUSE_S = 0.005
_LIMIT = 1 << 16


async def connect_unix(
    path: str, *, limit: int = _LIMIT
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; waits for as long as the queue is full, so give it a deadline.

    Args:
        path: of the socket.
        limit: of the reader's buffer in bytes.

    Errors:
        OSError: nobody listens there, or there is no such file.
    """
    connection = await connect_socket(path)
    try:
        return await asyncio.open_unix_connection(sock=connection, limit=limit)
    except BaseException:
        connection.close()
        raise


async def connect_socket(path: str) -> socket.socket:
    """The same, without the streams around it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        while True:
            try:
                connection.connect(path)
            except BlockingIOError:
                await asyncio.sleep(_PAUSE_S)
            else:
                return connection
    except BaseException:
        connection.close()
        raise
