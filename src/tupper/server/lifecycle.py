"""E2B's routes for pausing, resuming, snapshots and forks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import InvalidArgument, SnapshotNotFound, TupperError
from tupper.core.snapshot import SnapshotRecord
from tupper.protocol import e2b
from tupper.protocol.e2b import V2_TIMEOUT_S
from tupper.server.http import (
    answer,
    caller_of,
    engine_of,
    guarded,
    is_local,
    nothing,
    param,
    read_body,
)

_MAX_PAGE = 100


def routes() -> list[Route]:
    """The routes."""
    return [
        Route("/sandboxes/{id}/pause", guarded(_pause), methods=["POST"]),
        Route("/sandboxes/{id}/resume", guarded(_resume), methods=["POST"]),
        Route("/sandboxes/{id}/fork", guarded(_fork), methods=["POST"]),
        Route("/sandboxes/{id}/snapshots", guarded(_snapshot), methods=["POST"]),
        Route("/snapshots", guarded(_list), methods=["GET"]),
    ]


def _domain(request: Request) -> str | None:
    domain = getattr(request.state, "domain", None)
    return domain if isinstance(domain, str) else None


async def _pause(request: Request) -> Response:
    """A sandbox whose agent does not answer is never paused, so ``requireHealthyGuest`` holds."""
    body = await read_body(request)
    body.flag("requireHealthyGuest")
    await engine_of(request).pause(param(request), memory=body.flag("memory") is not False)
    return nothing()


async def _resume(request: Request) -> Response:
    body = await read_body(request)
    engine = engine_of(request)
    record = await engine.resume(param(request), body.number("timeout"))
    health = engine.health(record.id)
    shown = e2b.render_sandbox(
        record, domain=_domain(request), health=health, local=is_local(request)
    )
    return answer(shown, 201)


async def _fork(request: Request) -> Response:
    body = await read_body(request)
    engine, timeout_s = engine_of(request), body.number("timeout")
    count = body.whole("count")
    made = await engine.fork(
        param(request),
        count=1 if count is None else count,
        timeout_s=V2_TIMEOUT_S if timeout_s is None else timeout_s,
    )
    entries: list[dict[str, object]] = []
    for one in made:
        if isinstance(one, TupperError):
            entries.append({"error": e2b.render_error(one)})
        else:
            health = engine.health(one.id)
            shown = e2b.render_sandbox(
                one, domain=_domain(request), health=health, local=is_local(request)
            )
            entries.append({"sandbox": shown})
    return answer(entries, 201)


async def _snapshot(request: Request) -> Response:
    body = await read_body(request)
    record = await engine_of(request).snapshot(
        param(request), name=body.text("name"), memory=body.flag("memory") is not False
    )
    return answer(render_snapshot(record), 201)


async def _list(request: Request) -> Response:
    q = request.query_params
    records = await engine_of(request).list_snapshots(
        sandbox=q.get("sandboxID", ""), name=q.get("name", ""), owner_key=caller_of(request)
    )
    limit = _limit(q.get("limit", ""))
    start = _start(records, q.get("nextToken", ""))
    page = records[start : start + limit]
    headers = {"X-Next-Token": page[-1].id} if len(records) > start + limit else None
    return answer([render_snapshot(record) for record in page], 200, headers)


def _limit(text: str) -> int:
    if not text:
        return _MAX_PAGE
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MAX_PAGE):
        raise InvalidArgument(f"limit must be a number from 1 to {_MAX_PAGE}, not {text!r}")
    return int(text)


def _start(records: list[SnapshotRecord], token: str) -> int:
    """Where the page after a token begins: after the snapshot that it names."""
    if not token:
        return 0
    for index, record in enumerate(records):
        if record.id == token:
            return index + 1
    raise InvalidArgument("Invalid next token")


async def delete_snapshot(request: Request) -> bool:
    """E2B has snapshots among the templates. Whether the path named a snapshot, now removed."""
    try:
        await engine_of(request).remove_snapshot(param(request), owner_key=caller_of(request))
    except SnapshotNotFound:
        return False
    return True


def render_snapshot(record: SnapshotRecord) -> dict[str, object]:
    """The ``SnapshotInfo`` object."""
    return {
        "snapshotID": f"{record.id}:{record.tag}",
        "names": [f"tupper/{record.name}:{record.tag}"] if record.name else [],
        "tupper": {
            "sandboxID": record.sandbox_id,
            "createdAt": e2b.render_time(record.created_at),
            "sizeBytes": record.saved.size_bytes,
            "backend": record.saved.backend,
            "version": record.saved.version,
            "memory": record.saved.memory,
        },
    }
