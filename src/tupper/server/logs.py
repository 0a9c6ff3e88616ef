"""E2B's routes for a sandbox's log: what its agent and its machine said."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.protocol.logs import (
    Entry,
    parse_log,
    parse_query,
    render_entry,
    render_line,
    select,
)
from tupper.server.http import answer, engine_of, guarded, param


def routes() -> list[Route]:
    """The routes."""
    return [
        Route("/sandboxes/{id}/logs", guarded(_v1), methods=["GET"]),
        Route("/v2/sandboxes/{id}/logs", guarded(_v2), methods=["GET"]),
    ]


async def _entries(request: Request) -> list[Entry]:
    engine, reference = engine_of(request), param(request)
    text = await engine.log(reference)
    record = await engine.get(reference, ended=True)
    return parse_log(text, record.ended_at or record.started_at)


async def _v1(request: Request) -> Response:
    query = parse_query(request.query_params, cursor="start")
    found = select(await _entries(request), query)
    lines, entries = [render_line(e) for e in found], [render_entry(e) for e in found]
    return answer({"logs": lines, "logEntries": entries})


async def _v2(request: Request) -> Response:
    query = parse_query(request.query_params)
    return answer({"logs": [render_entry(e) for e in select(await _entries(request), query)]})
