"""Requests and answers of the control plane: bounded bodies, errors as JSON, streams as lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import TypeVar
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tupper.core.errors import InvalidArgument, TupperError, Unauthenticated
from tupper.core.log import problem
from tupper.engine import Engine
from tupper.protocol.e2b import render_error, status_of
from tupper.protocol.fields import Fields, parse_object
from tupper.server.activity import Activity

_T = TypeVar("_T")
Handler = Callable[[Request], Awaitable[Response]]

MAX_PAGE = 100
BODY_S = 60.0
MAX_BODY = 4 * 1024 * 1024
_RETRIED = frozenset({429, 502, 503, 504})


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers, media_type="application/json")


def nothing() -> Response:
    """204."""
    return Response(status_code=204)


def failure(error: TupperError) -> Response:
    """The answer for an error. Clients of E2B shall not repeat what we have judged."""
    status = status_of(error.code)
    headers = {"Should-Retry": "false"} if status in _RETRIED else None
    return answer(render_error(error), status, headers)


def plain_failure(status: int, message: str, error_code: str) -> Response:
    """The answer for an error that is none of the tree's."""
    return answer({"code": status, "message": message, "error_code": error_code}, status)


def engine_of(request: Request) -> Engine:
    """The engine behind a request."""
    engine = request.app.state.engine
    if not isinstance(engine, Engine):
        raise TypeError("the app has no engine")
    return engine


def activity_of(request: Request) -> Activity:
    """Who is told of work that outlives its request."""
    activity = request.app.state.activity
    if not isinstance(activity, Activity):
        raise TypeError("the app has no activity")
    return activity


def is_local(request: Request) -> bool:
    """Whether the caller came over the private socket."""
    return getattr(request.state, "local", False) is True


def caller_of(request: Request) -> str | None:
    """The id of the caller's API key; None for this machine's own user, who sees everything."""
    if is_local(request):
        return None
    key: object = getattr(request.state, "key", None)
    if not isinstance(key, str):
        raise Unauthenticated("the API key is missing or wrong")
    return key


def param(request: Request, name: str = "id") -> str:
    """A path parameter, decoded once, after routing: ``%2F`` does not part a path."""
    return unquote(request.path_params[name])


def page_limit(text: str) -> int:
    """The ``limit`` of a listing."""
    if not text:
        return MAX_PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidArgument(f"limit must be a number from 1 to {MAX_PAGE}, not {text[:80]!r}")
    return int(text)


async def read_body(request: Request) -> Fields:
    """The JSON object in the body; an empty body is an empty object.

    Raises:
        InvalidArgument: it is something else, too large, or too slow.
    """
    kept = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                kept += chunk
                if len(kept) > MAX_BODY:
                    raise InvalidArgument(f"the body is larger than {MAX_BODY} bytes")
    except TimeoutError as error:
        raise InvalidArgument(f"the body did not come within {BODY_S:g} s") from error
    return parse_object(bytes(kept))


def guarded(handler: Handler) -> Handler:
    """One of the four edges: whatever happens, the client gets a JSON answer."""

    async def guard(request: Request) -> Response:
        try:
            await _find_own(request)
            return await handler(request)
        except TupperError as error:
            return failure(error)
        except ClientDisconnect:
            return plain_failure(400, "the client went away", "internal")
        except TimeoutError:
            return plain_failure(504, "the sandbox did not answer in time", "deadline_exceeded")
        except Exception as error:  # noqa: BLE001 - one of the four edges
            problem(
                "request.crashed",
                method=request.method,
                path=request.url.path,
                error=type(error).__name__,
                message=str(error),
            )
            return plain_failure(500, f"internal error: {type(error).__name__}", "internal")

    return guard


_OF_SANDBOX = re.compile(r"(?:/\w+)*/sandboxes/[^/]+(?:/.*)?")


async def _find_own(request: Request) -> None:
    """Before any route of one sandbox: what an API key calls by name or id must be its own.

    From here on the path has the id, so no handler looks a name up among everybody's.
    """
    if "id" not in request.path_params or not _OF_SANDBOX.fullmatch(request.url.path):
        return
    owner_key = caller_of(request)
    if owner_key is not None:
        own = await engine_of(request).resolve(param(request), owner_key)
        request.path_params["id"] = own


async def while_connected(request: Request, work: Coroutine[object, object, _T]) -> _T:
    """Do something for a client, and cancel it when the client goes away. The body was read.

    Raises:
        ClientDisconnect: it went.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            doing.cancel()
            with contextlib.suppress(asyncio.CancelledError, TupperError):
                await doing
            raise ClientDisconnect
        return doing.result()
    finally:
        leaving.cancel()
        if not doing.done():
            doing.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Owning(StreamingResponse):
    """A stream, and what it is read from, which is closed however it ends.

    A client that leaves early ends a stream whose generator was not even begun; its own ``finally``
    never runs then.

    Args:
        owned: closed after the last byte, or in its place.
    """

    def __init__(
        self,
        body: AsyncIterator[bytes],
        owned: contextlib.AsyncExitStack,
        headers: Mapping[str, str],
        media_type: str | None = None,
    ) -> None:
        super().__init__(body, 200, headers, media_type)
        self._owned = owned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and close what it owns."""
        async with self._owned:
            await super().__call__(scope, receive, send)


Emit = Callable[[Mapping[str, object]], None]


def stream_lines(work: Callable[[Emit], Awaitable[Mapping[str, object]]]) -> Response:
    """Answer with one JSON object a line while the work is under way.

    Args:
        work: gets a function that sends one event, and returns the last one. Its error becomes
            an ``error`` event: the status is out by then.
    """
    return StreamingResponse(_lines(work), media_type="application/x-ndjson")


async def _lines(work: Callable[[Emit], Awaitable[Mapping[str, object]]]) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Mapping[str, object] | None] = asyncio.Queue()

    async def run() -> None:
        try:
            queue.put_nowait(await work(queue.put_nowait))
        except TupperError as error:
            queue.put_nowait({"event": "error", "error": render_error(error)})
        except Exception as error:  # noqa: BLE001 - one of the four edges
            problem("stream.crashed", error=type(error).__name__, message=str(error))
            body = {"code": 500, "message": type(error).__name__, "error_code": "internal"}
            queue.put_nowait({"event": "error", "error": body})
        finally:
            queue.put_nowait(None)

    task = asyncio.ensure_future(run())
    try:
        while (event := await queue.get()) is not None:
            yield json.dumps(event, ensure_ascii=False).encode() + b"\n"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
