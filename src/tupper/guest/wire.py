"""One HTTP request to an agent, with bounds on everything: time, head, body.

The engine's calls are few and small, so each has a connection of its own: nothing to keep alive
over a snapshot or a restart of the agent. Redirects, compression and trailers do not exist here.

Source: RFC 9112; h11 parses it and holds the head to its own limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import h11

from tupper.core.backend import AgentAddress
from tupper.core.errors import GuestMisbehaved, MachineUnreachable, Unsupported
from tupper.core.sockets import connect_unix

_CHUNK = 64 * 1024
_HEAD_MAX = 32 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Args:
        status: of HTTP.
        body: all of it.
        is_cut: whether the body was longer than asked for.
    """

    status: int
    body: bytes
    is_cut: bool = False


async def connect(address: AgentAddress) -> Streams:
    """Open a connection to an agent.

    Errors:
        MachineUnreachable: nobody listens there. Unsupported: an address of kind vsock.
    """
    try:
        if address.kind == "unix":
            return await connect_unix(address.path)
        if address.kind == "tcp":
            return await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        raise MachineUnreachable(f"cannot reach the agent: {error.strerror or error}") from error
    raise Unsupported("this version", f"agent addresses of kind {address.kind}")


@contextlib.asynccontextmanager
async def connected(address: AgentAddress) -> AsyncGenerator[Streams]:
    """A connection that is closed in the end."""
    reader, writer = await connect(address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def request(
    address: AgentAddress,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    body_max: int,
    cut: bool = False,
    to_end: bool = False,
    timeout_s: float,
) -> Reply:
    """Send a request and read the whole answer.

    Args:
        address: where.
        method: of HTTP.
        path: with its query.
        headers: besides Host, Connection and Content-Length.
        body: sent as it is.
        body_max: most bytes of the answer's body.
        cut: whether a longer answer is cut there instead of refused.
        to_end: whether to wait until the agent has closed the connection, too.
        timeout_s: for all of it.

    Errors:
        MachineUnreachable: nobody listens, the connection breaks, or time is over.
        GuestMisbehaved: not HTTP, or more than ``body_max``.
    """
    fields = {"Host": "agent", "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = h11.Request(method=method, target=path, headers=list(fields.items()))
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_MAX)
    outgoing = (head, h11.Data(data=body), h11.EndOfMessage())
    data = b"".join(connection.send(event) or b"" for event in outgoing)
    try:
        async with asyncio.timeout(timeout_s), connected(address) as (reader, writer):
            writer.write(data)
            await writer.drain()
            reply = await _read_reply(connection, reader, body_max, cut=cut)
            while to_end and await reader.read(_CHUNK):
                pass
            return reply
    except TimeoutError as error:
        raise MachineUnreachable(
            f"the agent did not answer {path.partition('?')[0]} within {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise MachineUnreachable(f"the agent closed the connection: {error}") from error
    except h11.RemoteProtocolError as error:
        raise GuestMisbehaved(f"the agent's answer is not HTTP: {error}") from error


async def _read_reply(
    connection: h11.Connection, reader: asyncio.StreamReader, body_max: int, *, cut: bool
) -> Reply:
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_CHUNK)
            if not data and not status:
                raise MachineUnreachable("the agent closed the connection without an answer")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > body_max:
                if not cut:
                    raise GuestMisbehaved(f"the agent's answer is longer than {body_max} bytes")
                return Reply(status, bytes(body[:body_max]), is_cut=True)
        elif isinstance(event, h11.EndOfMessage):
            return Reply(status, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise GuestMisbehaved("the agent closed the connection inside an answer")
