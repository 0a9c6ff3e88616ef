"""E2B's routes for secrets. A value comes in and never goes out. Source: E2B wire notes, 6.3."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import InvalidArgument
from tupper.core.secret import SecretRecord
from tupper.protocol.e2b import parse_token, render_time, render_token
from tupper.server.http import (
    answer,
    caller_of,
    engine_of,
    guarded,
    nothing,
    page_limit,
    param,
    read_body,
)


def routes() -> list[Route]:
    """The routes."""
    return [
        Route("/secrets", guarded(_list), methods=["GET"]),
        Route("/secrets", guarded(_create), methods=["POST"]),
        Route("/secrets/{id}", guarded(_get), methods=["GET"]),
        Route("/secrets/{id}", guarded(_update), methods=["POST"]),
        Route("/secrets/{id}", guarded(_remove), methods=["DELETE"]),
    ]


def _render(record: SecretRecord) -> dict[str, object]:
    return {
        "secretID": record.id,
        "name": record.name,
        "currentVersion": record.version,
        "metadata": dict(record.metadata),
        "createdAt": render_time(record.created_at),
        "updatedAt": render_time(record.updated_at),
    }


async def _list(request: Request) -> Response:
    query = request.query_params
    limit, token = page_limit(query.get("limit", "")), query.get("nextToken", "")
    after = parse_token(token, ascending=True) if token else (0.0, "")
    found = engine_of(request).secrets.list(caller_of(request))
    # Microseconds, as the token has them.
    places = sorted(((round(s.created_at, 6), s.id), s) for s in found)
    rest = [(place, secret) for place, secret in places if place > after]
    headers: dict[str, str] = {}
    if len(rest) > limit:
        headers["X-Next-Token"] = render_token(rest[limit - 1][0], ascending=True)
    return answer([_render(secret) for _, secret in rest[:limit]], headers=headers)


async def _create(request: Request) -> Response:
    body = await read_body(request)
    body.refuse_unknown(("name", "value", "metadata"))
    record = await engine_of(request).secrets.create(
        body.text("name"),
        body.text("value"),
        body.text_map("metadata"),
        caller_of(request) or "",
    )
    return answer(_render(record), 201)


async def _get(request: Request) -> Response:
    return answer(_render(engine_of(request).secrets.find(param(request), caller_of(request))))


async def _update(request: Request) -> Response:
    body = await read_body(request)
    body.refuse_unknown(("value", "metadata"))
    secrets = engine_of(request).secrets
    found = secrets.find(param(request), caller_of(request))
    if not body.has("value"):
        raise InvalidArgument("value is missing")
    metadata = body.text_map("metadata") if body.values.get("metadata") is not None else None
    return answer(_render(await secrets.update(found.id, body.text("value"), metadata)))


async def _remove(request: Request) -> Response:
    secrets = engine_of(request).secrets
    await secrets.remove(secrets.find(param(request), caller_of(request)).id)
    return nothing()
