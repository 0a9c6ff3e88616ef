"""E2B's REST routes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import InvalidArgument, PermissionDenied, SandboxNotFound
from tupper.core.lifecycle import State
from tupper.core.sandbox import SandboxRecord
from tupper.engine import Page, Query, Sample
from tupper.protocol import e2b, plain
from tupper.protocol.e2b import V1_TIMEOUT_S, V2_TIMEOUT_S
from tupper.protocol.e2b_network import parse_change
from tupper.server import idempotency
from tupper.server.http import (
    MAX_PAGE,
    answer,
    caller_of,
    engine_of,
    guarded,
    is_local,
    nothing,
    page_limit,
    param,
    read_body,
    while_connected,
)


def routes() -> list[Route]:
    """E2B's routes of sandboxes."""
    return [
        Route("/health", guarded(_health), methods=["GET"]),
        Route("/sandboxes", guarded(_create_v1), methods=["POST"]),
        Route("/v2/sandboxes", guarded(_create_v2), methods=["POST"]),
        Route("/sandboxes", guarded(_list_v1), methods=["GET"]),
        Route("/v2/sandboxes", guarded(_list_v2), methods=["GET"]),
        Route("/sandboxes/metrics", guarded(_metrics_of_many), methods=["GET"]),
        Route("/sandboxes/{id}", guarded(_get), methods=["GET"]),
        Route("/sandboxes/{id}", guarded(_kill), methods=["DELETE"]),
        Route("/sandboxes/{id}/connect", guarded(_connect_v1), methods=["POST"]),
        Route("/v2/sandboxes/{id}/connect", guarded(_connect_v2), methods=["POST"]),
        Route("/sandboxes/{id}/network", guarded(_network), methods=["PUT"]),
        Route("/sandboxes/{id}/timeout", guarded(_timeout), methods=["POST"]),
        Route("/sandboxes/{id}/refreshes", guarded(_refresh), methods=["POST"]),
        Route("/sandboxes/{id}/metrics", guarded(_metrics), methods=["GET"]),
    ]


async def _health(request: Request) -> Response:
    del request
    return answer({"status": "ok"})


async def _create_v1(request: Request) -> Response:
    return await _create(request, V1_TIMEOUT_S)


async def _create_v2(request: Request) -> Response:
    return await _create(request, V2_TIMEOUT_S)


async def _create(request: Request, default_timeout_s: float) -> Response:
    engine, body = engine_of(request), await read_body(request)
    if plain.is_plain(body):
        body = plain.expand(body)
        default_timeout_s = engine.settings.default_timeout_s
    elif "tupper" in body.values:
        default_timeout_s = engine.settings.default_timeout_s
    wanted = e2b.create_request(body, default_timeout_s=default_timeout_s)
    if not is_local(request) and (what := e2b.needs_local_caller(wanted)):
        raise PermissionDenied(f"{what} can be asked for only on the machine itself")
    owner_key = caller_of(request) or ""
    wanted = replace(wanted, owner_key=owner_key)
    given = request.headers.get("idempotency-key")
    if given is None:
        record = await while_connected(request, engine.create(wanted))
    else:
        keys = idempotency.keys_of(request)
        with keys.claim(owner_key, given, body.values) as claim:
            if claim.record is None:
                claim.record = await while_connected(request, engine.create(wanted))
            record = claim.record
    return answer(_sandbox(request, record), 201)


def _sandbox(request: Request, record: SandboxRecord) -> dict[str, object]:
    health = engine_of(request).health(record.id)
    return e2b.render_sandbox(
        record, domain=_domain(request), health=health, local=is_local(request)
    )


def _domain(request: Request) -> str | None:
    domain = getattr(request.state, "domain", None)
    return domain if isinstance(domain, str) else None


async def _connect_v1(request: Request) -> Response:
    body = await read_body(request)
    timeout_s = body.number("timeout")
    if timeout_s is None and "tupper" not in body.values:
        raise InvalidArgument("timeout is missing")
    return await _connect(request, timeout_s, cold=False)


async def _connect_v2(request: Request) -> Response:
    body = await read_body(request)
    timeout_s = body.number("timeout")
    if timeout_s is None and "tupper" not in body.values:
        timeout_s = V2_TIMEOUT_S
    return await _connect(request, timeout_s, cold=body.flag("memory") is False)


async def _connect(request: Request, timeout_s: float | None, *, cold: bool) -> Response:
    engine = engine_of(request)
    status = 201 if engine.is_paused(param(request)) else 200
    record = await engine.connect(param(request), timeout_s, cold=cold)
    return answer(_sandbox(request, record), status)


async def _get(request: Request) -> Response:
    engine = engine_of(request)
    ended = request.query_params.get("ended") == "true"
    record = await engine.get(param(request), ended=ended)
    body = e2b.render_detail(
        record,
        domain=_domain(request),
        health=engine.health(record.id),
        local=is_local(request),
    )
    return answer(body)


async def _kill(request: Request) -> Response:
    await engine_of(request).kill(param(request))
    return nothing()


async def _timeout(request: Request) -> Response:
    body = await read_body(request)
    timeout_s = body.number("timeout")
    if timeout_s is None and "timeout" not in body.values:
        raise InvalidArgument("timeout is missing")
    await engine_of(request).set_timeout(param(request), timeout_s)
    return nothing()


async def _network(request: Request) -> Response:
    internet, (allow_out, deny_out) = parse_change(await read_body(request))
    await engine_of(request).update_network(
        param(request), allow_internet=internet, allow_out=allow_out, deny_out=deny_out
    )
    return nothing()


async def _refresh(request: Request) -> Response:
    body = await read_body(request)
    duration_s = body.number("duration")
    await engine_of(request).refresh(
        param(request), V1_TIMEOUT_S if duration_s is None else max(duration_s, 0.0)
    )
    return nothing()


async def _list_v1(request: Request) -> Response:
    query = Query(
        frozenset({State.RUNNING}),
        e2b.parse_metadata_filter(request.query_params.get("metadata", "")),
        limit=10**6,
        owner_key=caller_of(request),
    )
    return _page(request, await engine_of(request).page(query), ascending=False)


async def _list_v2(request: Request) -> Response:
    q = request.query_params
    order = q.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidArgument(f"order must be asc or desc, not {order!r}")
    ascending = order == "asc"
    token = q.get("nextToken", "")
    template = q.get("template", "")
    if ":" in template and "/" not in template:
        raise InvalidArgument("a template filter takes no tag")
    query = Query(
        states=_states(q.get("state", "")),
        metadata=e2b.parse_metadata_filter(q.get("metadata", "")),
        template=template,
        started_after=e2b.parse_time(q["startedAfter"]) if q.get("startedAfter") else 0.0,
        ascending=ascending,
        limit=page_limit(q.get("limit", "")),
        owner_key=caller_of(request),
        after=e2b.parse_token(token, ascending=ascending) if token else None,
    )
    return _page(request, await engine_of(request).page(query), ascending=ascending)


def _states(text: str) -> frozenset[State]:
    names = [name for name in text.split(",") if name]
    known = {"running": State.RUNNING, "paused": State.PAUSED, "ended": State.ENDED}
    for name in names:
        if name not in known:
            raise InvalidArgument(f"{name!r} is no state of a sandbox")
    return frozenset(known[name] for name in names or ("running", "paused"))


def _page(request: Request, page: Page, *, ascending: bool) -> Response:
    engine, local = engine_of(request), is_local(request)
    body = [
        e2b.render_listed(record, health=engine.health(record.id), local=local)
        for record in page.records
    ]
    owner_key = caller_of(request)
    mine = [s for s in engine.running() if owner_key in (None, s.record.owner_key)]
    headers = {"X-Total-Running": str(len(mine))}
    if page.next_after is not None:
        headers["X-Next-Token"] = e2b.render_token(page.next_after, ascending=ascending)
    return answer(body, 200, headers)


async def _metrics(request: Request) -> Response:
    start, end = (_seconds(request, name) for name in ("start", "end"))
    samples = await engine_of(request).metrics(param(request), start, end)
    return answer([_metric(sample) for sample in samples])


async def _metrics_of_many(request: Request) -> Response:
    ids = [name for name in request.query_params.get("sandbox_ids", "").split(",") if name]
    if not 0 < len(ids) <= MAX_PAGE:
        raise InvalidArgument(f"sandbox_ids must name 1 to {MAX_PAGE} sandboxes, not {len(ids)}")
    found = await asyncio.gather(*(_latest(request, name) for name in ids))
    return answer(
        {"sandboxes": {name: sample for name, sample in zip(ids, found, strict=True) if sample}}
    )


async def _latest(request: Request, reference: str) -> dict[str, object] | None:
    engine, owner_key = engine_of(request), caller_of(request)
    try:
        if owner_key is not None:
            reference = await engine.resolve(reference, owner_key)
        samples = await engine.metrics(reference)
    except SandboxNotFound:
        return None
    return _metric(samples[-1]) if samples else None


def _seconds(request: Request, name: str) -> float | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidArgument(f"{name} must be unix seconds, not {text!r}")
    return float(text)


def _metric(sample: Sample) -> dict[str, object]:
    return {
        "timestamp": e2b.render_time(sample.at),
        "timestampUnix": int(sample.at),
        "cpuCount": sample.cpu_count,
        "cpuUsedPct": sample.cpu_used_pct,
        "memUsed": sample.memory_used,
        "memTotal": sample.memory_total,
        "memCache": sample.memory_cache,
        "diskUsed": sample.disk_used,
        "diskTotal": sample.disk_total,
    }
