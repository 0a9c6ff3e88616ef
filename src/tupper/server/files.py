"""``GET`` and ``PUT /sandboxes/{id}/files?path=``: one file, as the body of a request.

Bytes are passed on as they come; nothing is kept beyond one chunk. Source: ``docs/http.md``.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import GuestMisbehaved, InvalidArgument
from tupper.protocol.connect import as_list, as_object, parse_json
from tupper.server.http import Owning, answer, engine_of, guarded, param, plain_failure
from tupper.server.inside import Ask, Told, asking, find_awake

_TEXT_MAX = 64 * 1024
_PASSED_ON = ("content-type", "content-length", "last-modified")
_CODES = {404: "not_found", 413: "limit_reached", 507: "out_of_disk"}


def routes() -> list[Route]:
    """The routes."""
    return [
        Route("/sandboxes/{id}/files", guarded(_read), methods=["GET"]),
        Route("/sandboxes/{id}/files", guarded(_write), methods=["PUT"]),
    ]


def _target(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path or "\0" in path:
        raise InvalidArgument("path is missing: ?path=/home/user/file")
    query = {"path": path}
    if user := request.query_params.get("user"):
        query["username"] = user
    return f"/files?{urlencode(query)}"


async def _refusal(told: Told) -> Response:
    text = await told.text(_TEXT_MAX)
    try:
        found = as_object(parse_json(text, "the agent's answer")) or {}
    except GuestMisbehaved:
        found = {}
    message = found.get("message")
    # An unknown user inside is no matter of the caller's key.
    status = 400 if told.status in (401, 403) else told.status
    if status < 400:
        raise GuestMisbehaved(f"the agent answered {status} to a request for a file")
    said = str(message)[:500] if isinstance(message, str) else f"HTTP status {status}"
    return plain_failure(status, said, _CODES.get(status, "invalid_argument"))


async def _read(request: Request) -> Response:
    target, engine = _target(request), engine_of(request)
    sandbox_id = await find_awake(engine, param(request))
    ask = Ask("GET", target, {"Accept-Encoding": "identity"})
    async with AsyncExitStack() as stack:
        told = await stack.enter_async_context(asking(engine, sandbox_id, ask))
        if told.status != 200:
            return await _refusal(told)
        headers = {name: told.headers[name] for name in _PASSED_ON if name in told.headers}
        # What a guest calls HTML shall not run as a page of ours.
        headers |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        rest = stack.pop_all()
    return Owning(told.body, rest, headers)


async def _write(request: Request) -> Response:
    target, engine = _target(request), engine_of(request)
    sandbox_id = await find_awake(engine, param(request))
    headers = {"Content-Type": "application/octet-stream"}
    ask = Ask("POST", target, headers, request.stream())
    async with asking(engine, sandbox_id, ask) as told:
        if told.status != 200:
            return await _refusal(told)
        written = as_list(parse_json(await told.text(_TEXT_MAX), "an upload's answer"))
    entry = as_object(written[0]) if written else None
    if entry is None:
        raise GuestMisbehaved("the answer to an upload names no file")
    return answer({"path": entry.get("path"), "name": entry.get("name"), "type": "file"})
