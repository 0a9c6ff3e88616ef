"""A port of a sandbox on the host: a listener that leads every connection through the agent.

The agent dials the port inside, on whichever address something listens (many servers bind only
127.0.0.1), so nothing here depends on the sandbox's network. Each direction is copied on its own:
an end is passed on as a half-close, a slow reader holds its writer back, and a broken connection
breaks its other half, so that neither side waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import time
from asyncio import trsock

from tupper.core import log
from tupper.core.backend import AgentAddress
from tupper.core.errors import AlreadyExists, GuestMisbehaved, InvalidArgument, Unsupported
from tupper.core.sockets import connect_unix
from tupper.protocol import tunnel

_CHUNK = 64 * 1024
_RETRY_S = 1.0  # a server that was just started opens its port a moment later
_PAUSE_S = 0.05
_OPEN_S = 10.0
_FLUSH_S = 30.0
_TRIES = 16
_BACKLOG = 256
_NOT_OPEN = 502

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PortForward:
    """A listener on the host that leads to one TCP port inside one sandbox."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(
        self, address: AgentAddress, token: str, guest_port: int, host: str, host_port: int
    ) -> int:
        """Listen.

        Args:
            address: of the agent.
            token: the sandbox's secret.
            guest_port: the port inside.
            host: the host's address to listen on; with 127.0.0.1 also ::1 where there is IPv6, so
                that ``localhost`` works whatever it means to a client.
            host_port: 0 for any that is free.

        Returns:
            The port.

        Errors:
            AlreadyExists: the port is in use. InvalidArgument: no such address on this host.
        """

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of our own: those of asyncio's servers complain when they are cancelled.
            task = asyncio.create_task(_serve(reader, writer, address, token, guest_port))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        sockets = _listen(host, host_port)
        try:
            for sock in sockets:
                self._servers.append(await asyncio.start_server(accept, sock=sock, limit=_CHUNK))
        except BaseException:
            for sock in sockets:
                sock.close()
            self.close()
            raise
        port: int = sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Stop listening and end what is open. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in self._connections:
            task.cancel()


def _listen(host: str, port: int) -> list[socket.socket]:
    for _ in range(_TRIES):
        first = _bind(host, port)
        if host != "127.0.0.1":
            return [first]
        try:
            return [first, _bind("::1", first.getsockname()[1])]
        except AlreadyExists:
            if port:
                # Somebody else's service on ::1 does not make ours impossible.
                log.problem("port.only_ipv4", port=port)
                return [first]
            first.close()
        except InvalidArgument:  # a host without IPv6
            return [first]
    raise AlreadyExists(f"no port that is free on both 127.0.0.1 and ::1 in {_TRIES} tries")


def _bind(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if os.name == "posix":  # elsewhere it would allow to steal a port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AlreadyExists(
                f"port {port} on {host} is in use", hint="choose another host port, or 0 for any"
            ) from error
        raise InvalidArgument(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    address: AgentAddress,
    token: str,
    guest_port: int,
) -> None:
    """One connection from its first to its last byte."""
    try:
        inside = await _open_tunnel(address, token, guest_port)
    except (OSError, TimeoutError, GuestMisbehaved, Unsupported) as error:
        log.event("port.refused", port=guest_port, error=error)
        _reset(writer)  # the client shall not take it for an empty answer
        return
    except BaseException:
        writer.transport.abort()
        raise
    try:
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(_pump(reader, inside[1]))
            pumps.create_task(_pump(inside[0], writer))
        for end in (writer, inside[1]):
            end.close()
        # What is still buffered goes out, but not to somebody who never reads it.
        async with asyncio.timeout(_FLUSH_S):
            for end in (writer, inside[1]):
                await end.wait_closed()
    except* (OSError, TimeoutError):
        _reset(writer)  # one side broke; the other learns it
    finally:
        for end in (writer, inside[1]):
            end.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a TCP connection so that its other end sees an error. Source: socket(7), SO_LINGER."""
    sock = writer.get_extra_info("socket")
    if isinstance(sock, trsock.TransportSocket):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()


async def _open_tunnel(address: AgentAddress, token: str, port: int) -> Streams:
    """Dial the port inside; while nothing listens, again for a second."""
    deadline = time.monotonic() + _RETRY_S
    async with asyncio.timeout(_OPEN_S):
        while True:
            reader, writer = await _connect(address)
            try:
                status = await _upgrade(reader, writer, token, port)
            except BaseException:
                writer.transport.abort()
                raise
            if status == 101:
                return reader, writer
            writer.close()
            if status != _NOT_OPEN or time.monotonic() > deadline:
                raise ConnectionRefusedError(f"the agent answered HTTP status {status}")
            await asyncio.sleep(_PAUSE_S)


async def _connect(address: AgentAddress) -> Streams:
    if address.kind == "unix":
        return await connect_unix(address.path, limit=_CHUNK)
    if address.kind == "tcp":
        return await asyncio.open_connection(address.host, address.port, limit=_CHUNK)
    raise Unsupported("this version", f"agent addresses of kind {address.kind}")


async def _upgrade(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, port: int
) -> int:
    writer.write(tunnel.render_request(port, token))
    await writer.drain()
    parser = tunnel.ReplyParser()
    with contextlib.suppress(asyncio.IncompleteReadError):
        try:
            head = await reader.readuntil(b"\r\n\r\n")  # not a byte further
        except asyncio.LimitOverrunError:
            raise GuestMisbehaved("the head of a tunnel is too long") from None
        reply = parser.feed(head)
        return 0 if reply is None else reply.status
    raise ConnectionResetError("the agent closed a tunnel before it was open")
