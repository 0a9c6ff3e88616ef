"""Our own routes, below ``/tupper/v1``."""

from __future__ import annotations

import asyncio
import dataclasses
import os

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tupper.core.backend import Probe
from tupper.core.errors import Conflict, InvalidArgument, NotFound, PermissionDenied
from tupper.core.version import PROTOCOL, VERSION
from tupper.server.auth import new_key
from tupper.server.http import (
    answer,
    engine_of,
    guarded,
    is_local,
    nothing,
    param,
    read_body,
)
from tupper.server.links import links_of

PREFIX = "/tupper/v1"


def routes() -> list[Route]:
    """Routes about the background process and about one sandbox."""
    return [
        Route(f"{PREFIX}/info", guarded(_info), methods=["GET"]),
        Route(f"{PREFIX}/shutdown", guarded(_shutdown), methods=["POST"]),
        Route(f"{PREFIX}/doctor", guarded(_doctor), methods=["GET"]),
        Route(f"{PREFIX}/keys", guarded(_keys), methods=["GET"]),
        Route(f"{PREFIX}/keys", guarded(_add_key), methods=["POST"]),
        Route(f"{PREFIX}/keys/{{id}}", guarded(_remove_key), methods=["DELETE"]),
        Route(f"{PREFIX}/links", guarded(_links), methods=["POST"]),
        Route(f"{PREFIX}/sandboxes/{{id}}/ports", guarded(_publish), methods=["POST"]),
        Route(f"{PREFIX}/sandboxes/{{id}}/idle-timeout", guarded(_idle), methods=["POST"]),
        Route(f"{PREFIX}/sandboxes/{{id}}/log", guarded(_log), methods=["GET"]),
    ]


def require_local(request: Request, what: str) -> None:
    """Refuse callers over TCP."""
    if not is_local(request):
        raise PermissionDenied(f"{what} can be done only on the machine itself")


async def _info(request: Request) -> Response:
    engine = engine_of(request)
    return answer(
        {
            "version": VERSION,
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "engineId": engine.engine_id,
            "sandboxes": engine.count,
            "background": request.app.state.background is True,
            "unbuilt": engine.templates.unbuilt(),
        }
    )


async def _shutdown(request: Request) -> Response:
    require_local(request, "a shutdown")
    engine, body = engine_of(request), await read_body(request)
    restart, force = body.flag("restart") is True, body.flag("force") is True
    if engine.count and not (force or restart):
        raise Conflict(f"{engine.count} sandboxes run", hint='{"force": true} leaves them running')
    request.app.state.restart = restart
    leave: object = request.app.state.leave
    if not isinstance(leave, asyncio.Event):
        raise TypeError("the app has no leave event")
    leave.set()
    return answer({"leaving": True, "restart": restart}, 202)


async def _doctor(request: Request) -> Response:
    engine = engine_of(request)
    probes = await engine.probes()
    return answer(
        {
            "backends": [_probe(probe) for probe in probes],
            "default": engine.default_backend(probes),
        }
    )


def _probe(probe: Probe) -> dict[str, object]:
    values = dataclasses.asdict(probe)
    values["isolation"] = str(probe.isolation) if probe.isolation else None
    values["capabilities"] = sorted(str(capability) for capability in probe.capabilities)
    values["details"] = dict(probe.details)
    return values


async def _keys(request: Request) -> Response:
    require_local(request, "listing API keys")
    keys = await engine_of(request).store.keys()
    return answer([{"id": k.id, "label": k.label, "createdAt": k.created_at} for k in keys])


async def _add_key(request: Request) -> Response:
    require_local(request, "making an API key")
    body = await read_body(request)
    secret, key = new_key(body.text("label"))
    await engine_of(request).store.add_key(key)
    return answer({"id": key.id, "key": secret, "label": key.label}, 201)


async def _remove_key(request: Request) -> Response:
    require_local(request, "removing an API key")
    if not await engine_of(request).store.remove_key(param(request)):
        raise NotFound(f"there is no API key {param(request)!r}")
    return nothing()


async def _publish(request: Request) -> Response:
    require_local(request, "publishing a port on the host")
    body = await read_body(request)
    port, host_port = body.whole("port"), body.whole("host") or 0
    if port is None:
        raise InvalidArgument("port is missing")
    engine = engine_of(request)
    return answer({"address": await engine.publish_port(param(request), port, host_port=host_port)})


async def _links(request: Request) -> Response:
    require_local(request, "opening an address for links")
    return answer({"url": await links_of(request).url()})


async def _idle(request: Request) -> Response:
    body = await read_body(request)
    if not body.has("idleTimeout"):
        raise InvalidArgument("idleTimeout is missing")
    await engine_of(request).set_idle_timeout(param(request), body.number("idleTimeout"))
    return nothing()


async def _log(request: Request) -> Response:
    return PlainTextResponse(await engine_of(request).log(param(request)))
