"""The data plane for callers that cannot dial the agent themselves.

A request for a sandbox is recognised by its head, and from there on the connection belongs to the
sandbox: bytes are passed both ways, nothing is buffered beyond one chunk and nothing is read in
them. Each such connection carries one request (``Connection: close``), or what it was upgraded to;
so what follows can never be taken for a request to somebody else.

When the sandbox ends, a connection whose answer has begun is cut with a reset, which E2B's clients
tell from the end of an answer; a request that has had no answer yet gets 502.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qs

from tupper.core.errors import NotFound, SandboxNotFound, TupperError
from tupper.core.log import problem
from tupper.core.sandbox import SandboxRecord
from tupper.engine import Engine
from tupper.protocol.e2b import ENVD_PORT, file_signature
from tupper.server.head import Destination, Head, find_destination, is_internal, render_head
from tupper.server.ingress import dress, guest_tls, ingress_of, judge_traffic
from tupper.server.joining import Joint, Streams, reset

_CHUNK = 256 * 1024
_DIAL_S = 10.0
# Ports of a server that was just started open slowly.
_RETRY_S = 1.0
_RETRY_STEP_S = 0.1

_PHRASES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}


class PortClosed(TupperError):
    """Nothing listens at the port inside."""

    code = "unavailable"


def find_target(engine: Engine, head: Head) -> Destination | None:
    """Which sandbox a request is for; None if it is for the control plane.

    A signed file URL names no sandbox: it is the one whose token made the signature.
    """
    destination = find_destination(head)
    if destination is not None and destination.port == ENVD_PORT and _is_control(head.path):
        return None
    if destination is not None or head.path != "/files":
        return destination
    if not parse_qs(head.query).get("signature"):
        return None
    for sandbox in engine.reachable():
        if _is_signed(head, sandbox.record.token):
            return Destination(sandbox.id, ENVD_PORT)
    return Destination("", ENVD_PORT, "invalid signature")


def _is_control(path: str) -> bool:
    """Whether a path is the control plane's, whatever the headers say.

    Source: e2b for Python 2.20, which names the sandbox in headers also when it asks to connect.
    """
    return path.startswith(("/sandboxes/", "/v2/sandboxes/"))


def _is_signed(head: Head, token: str) -> bool:
    """Whether a URL of a file has the signature that a sandbox's token makes."""
    query = parse_qs(head.query, keep_blank_values=True)
    operation = "write" if head.method == b"POST" else "read"
    path, user, expiration, signature = (
        query.get(key, [""])[0] for key in ("path", "username", "signature_expiration", "signature")
    )
    good = file_signature(path, operation, user, token, expiration)
    return hmac.compare_digest(good.encode(), signature.encode())


async def _wake(engine: Engine, head: Head, to: Destination) -> str:
    """Resume a paused sandbox that asked for that; why the caller may not, or nothing.

    The agent judges who may talk to it, but a paused one cannot: so its token is asked for here.
    """
    record = engine.record(to.sandbox_id)
    if record is None or not engine.resumes_itself(to.sandbox_id):
        return ""
    given = head.values(b"x-access-token")
    has_token = any(hmac.compare_digest(one, record.token.encode()) for one in given)
    if to.port == ENVD_PORT and not has_token and not _is_signed(head, record.token):
        return "The sandbox is paused, and this is not its access token"
    await engine.connect(to.sandbox_id, None)
    return ""


async def serve_stream(
    engine: Engine, transport: asyncio.Transport, head: Head, to: Destination, rest: bytes
) -> None:
    """Take over a client's connection and pass it on. Never raises.

    Args:
        engine: whose sandboxes.
        transport: the client's; its protocol is replaced.
        head: of the request.
        to: where it goes.
        rest: what came after the head.
    """
    reader, writer = adopt_transport(transport, rest)
    try:
        refusal = _refuse(engine.record(to.sandbox_id), head, to)
        if refusal is None and (complaint := await _wake(engine, head, to)):
            refusal = 403, {"sandboxId": to.sandbox_id, "message": complaint}
        if refusal is None:
            await _forward(engine, reader, writer, head, to)
        else:
            _answer(writer, *refusal)
    except SandboxNotFound:
        _answer(writer, 502, _gone(to))
    except (TupperError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        message = "The sandbox is running but port is not open"
        body = {"sandboxId": to.sandbox_id, "message": message, "port": to.port}
        _answer(writer, 502, body)
        problem("proxy.failed", sandbox=to.sandbox_id, port=to.port, message=str(error))
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            writer.close()
            async with asyncio.timeout(_DIAL_S):
                await writer.wait_closed()


def adopt_transport(transport: asyncio.Transport, rest: bytes) -> Streams:
    """Put streams over a transport that some protocol had until now."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    protocol.connection_made(transport)
    transport.set_protocol(protocol)
    transport.resume_reading()
    if rest:
        reader.feed_data(rest)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _refuse(
    record: SandboxRecord | None, head: Head, to: Destination
) -> tuple[int, dict[str, object]] | None:
    if to.complaint == "invalid signature":
        return 401, {"message": to.complaint}
    if to.complaint:
        return 400, {"message": to.complaint}
    if not head.target.startswith(b"/") and head.target != b"*":
        # An agent would take the path out of a whole URL, which we have not judged.
        return 400, {"message": "the request target must be a path"}
    if is_internal(head, to.port):
        return 404, {"message": "there is no such path", "path": head.path}
    if record is not None and (complaint := judge_traffic(record, head, to.port)):
        return 403, {"sandboxId": to.sandbox_id, "message": complaint}
    return None


def _answer(writer: asyncio.StreamWriter, status: int, body: Mapping[str, object]) -> None:
    """One JSON answer, if the client has not had another yet."""
    text = json.dumps({**body, "code": status}).encode()
    phrase = _PHRASES.get(status, "Bad Gateway")
    writer.write(
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n"
        f"Access-Control-Allow-Origin: *\r\nConnection: close\r\n"
        f"Content-Length: {len(text)}\r\n\r\n".encode()
        + text
    )


def _gone(to: Destination) -> dict[str, object]:
    return {"sandboxId": to.sandbox_id, "message": "The sandbox was not found"}


async def _forward(
    engine: Engine,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: Head,
    to: Destination,
) -> None:
    ingress = ingress_of(engine.record(to.sandbox_id), to.port)
    # Encryption has a state, which would not outlive the change of the connection below it.
    is_plain = to.port not in ingress.https_ports
    carry = secrets.token_hex(16) if is_plain else ""
    guest = await _dial(engine, to, carry)
    if not is_plain:
        await guest[1].start_tls(guest_tls(), server_hostname="localhost")
    joint = Joint(
        (reader, writer),
        guest,
        is_held=lambda: is_plain and engine.is_held(to.sandbox_id),
        again=lambda: engine.carry_on(to.sandbox_id, carry),
    )
    task = cast("asyncio.Task[None]", asyncio.current_task())

    def cut() -> None:
        if joint.has_answered:
            reset(writer)
        else:
            _answer(writer, 502, _gone(to))
            writer.close()
        joint.guest[1].transport.abort()
        task.cancel()

    release = engine.hold(to.sandbox_id, cut)
    try:
        named = carry if to.port == ENVD_PORT else ""
        guest[1].write(render_head(dress(head, ingress, to.port), carry=named))
        await joint.join()
    except asyncio.CancelledError:
        if not writer.transport.is_closing():
            raise
    finally:
        release()
        joint.guest[1].transport.abort()


async def _dial(engine: Engine, to: Destination, carry: str) -> Streams:
    """Connect to the port inside, again and again for a short while if nothing listens yet."""
    give_up = time.monotonic() + _RETRY_S
    while True:
        try:
            async with asyncio.timeout(_DIAL_S):
                return await engine.dial(to.sandbox_id, to.port, carry=carry)
        except SandboxNotFound:
            raise
        except (OSError, TupperError) as error:
            if isinstance(error, NotFound) or time.monotonic() > give_up:
                raise
            await asyncio.sleep(_RETRY_STEP_S)
