"""HTTP requests of ours to a sandbox's agent, streaming both ways.

For the routes that do something inside on behalf of a caller who speaks no envd. Nothing is kept
beyond one chunk in either direction; the connection is cut when the sandbox ends.

Source: RFC 9112; h11 parses it and holds the head to its own limit.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass

import h11

from tupper.core.errors import (
    Conflict,
    GuestMisbehaved,
    MachineUnreachable,
    SandboxNotFound,
    TupperError,
)
from tupper.core.lifecycle import State
from tupper.engine import Engine
from tupper.protocol.e2b import ENVD_PORT

_CHUNK = 256 * 1024
_HEAD_MAX = 32 * 1024
_ANSWER_S = 60.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of an agent.

    Args:
        method: of HTTP.
        target: path and query, encoded.
        headers: besides Host, Connection, the token and those of the body.
        body: all of it, or a stream of unknown length.
        user: as whom; empty for the sandbox's default.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | AsyncIterable[bytes] = b""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """An agent's answer, whose body is still to come.

    Args:
        status: of HTTP.
        headers: names in lower case.
        body: pieces of it; may be read once.
    """

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    async def text(self, most: int) -> bytes:
        """The whole body, cut after so many bytes."""
        kept = bytearray()
        async for chunk in self.body:
            kept += chunk
            if len(kept) >= most:
                break
        return bytes(kept[:most])


async def find_awake(engine: Engine, reference: str) -> str:
    """The id of a sandbox that can be asked; a paused one that resumes by itself does so.

    Raises:
        SandboxNotFound: there is none.
        Conflict: it is paused, and nobody said that a request resumes it.
    """
    record = await engine.get(reference)
    if record.state is State.PAUSED:
        if not engine.resumes_itself(record.id):
            raise Conflict(
                f"sandbox {record.id} is paused", hint="POST /v2/sandboxes/{id}/connect resumes it"
            )
        await engine.connect(record.id, None)
    return record.id


@contextlib.asynccontextmanager
async def asking(
    engine: Engine, sandbox_id: str, ask: Ask, *, answer_s: float | None = _ANSWER_S
) -> AsyncGenerator[Told]:
    """Ask a sandbox's agent.

    Args:
        engine: whose sandbox.
        sandbox_id: which; by its id.
        ask: what.
        answer_s: until the head of the answer, once all is sent; None for no limit.

    Raises:
        SandboxNotFound: it does not run, or ended meanwhile.
        MachineUnreachable: the agent did not answer.
        GuestMisbehaved: not HTTP.
    """
    record = engine.record(sandbox_id)
    reader, writer = await engine.dial(sandbox_id, ENVD_PORT)
    release = engine.hold(sandbox_id, writer.transport.abort)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_MAX)
    sending = asyncio.ensure_future(_send(connection, writer, ask, record.token if record else ""))
    try:
        response = await _head(connection, reader, sending, answer_s)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in response.headers}
        yield Told(response.status_code, headers, _body(connection, reader))
    except (OSError, h11.ProtocolError) as error:
        raise _failure(engine, sandbox_id, error) from error
    finally:
        release()
        sending.cancel()
        writer.transport.abort()
        await asyncio.gather(sending, return_exceptions=True)


def _failure(engine: Engine, sandbox_id: str, error: Exception) -> TupperError:
    if not any(sandbox.id == sandbox_id for sandbox in engine.running()):
        return SandboxNotFound(f"sandbox {sandbox_id!r} ended meanwhile")
    if isinstance(error, OSError):
        return MachineUnreachable(f"the agent closed the connection: {error}")
    return GuestMisbehaved(f"the agent's answer is not HTTP: {error}")


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, ask: Ask, token: str
) -> None:
    fields = {"Host": "agent", "Connection": "close", "X-Access-Token": token, **ask.headers}
    if ask.user:
        name = base64.b64encode(f"{ask.user}:".encode()).decode()
        fields["Authorization"] = f"Basic {name}"
    whole = ask.body if isinstance(ask.body, bytes) else None
    if whole is None:
        fields["Transfer-Encoding"] = "chunked"
    else:
        fields["Content-Length"] = str(len(whole))
    head = h11.Request(method=ask.method, target=ask.target, headers=list(fields.items()))
    writer.write(connection.send(head) or b"")
    async for chunk in _pieces(ask.body):
        writer.write(connection.send(h11.Data(data=chunk)) or b"")
        await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _pieces(body: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        if body:
            yield body
        return
    async for chunk in body:
        if chunk:
            yield chunk


async def _head(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    sending: asyncio.Future[None],
    answer_s: float | None,
) -> h11.Response:
    """The head of the answer: after the request, or before its end when that is refused."""
    answering = asyncio.ensure_future(_response(connection, reader))
    try:
        both: set[asyncio.Future[None] | asyncio.Future[h11.Response]] = {sending, answering}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and not answering.done():
            if (error := sending.exception()) is not None and not isinstance(error, OSError):
                raise error  # the caller's body broke off
            async with asyncio.timeout(answer_s):
                return await answering
        return answering.result()
    except TimeoutError as error:
        raise MachineUnreachable(f"the agent did not answer within {answer_s:g} s") from error
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def _response(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    while True:
        event = await _next(connection, reader)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            raise ConnectionResetError("no answer")


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        event = await _next(connection, reader)
        if isinstance(event, h11.Data):
            yield bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return
        else:
            raise ConnectionResetError("the answer broke off")


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_CHUNK))
    return event
