"""The control plane as one ASGI app: routing on the raw path, keys, errors as JSON."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tupper.core.errors import LimitReached, Unauthenticated
from tupper.engine import Engine
from tupper.server import (
    commands,
    docs,
    e2b,
    events,
    files,
    lifecycle,
    logs,
    own,
    secrets,
    stock,
    templates,
    volumes,
)
from tupper.server.activity import Activity
from tupper.server.auth import find_key, given_secrets
from tupper.server.http import failure, plain_failure
from tupper.server.idempotency import Keys
from tupper.server.links import Links
from tupper.server.rate import Rate

# Wrong keys from one address in a second.
STRANGERS_PER_S = 20.0
# What asks for no key.
OPEN = ("/health", *docs.OPEN)


def make_app(
    engine: Engine, activity: Activity, leave: asyncio.Event, *, background: bool = True
) -> Gatekeeper:
    """The app.

    Args:
        engine: what it serves.
        activity: is told of each request.
        leave: is set when a client asks the process to leave.
        background: whether `tupper serve` may take its place.
    """
    # Ours first: E2B's unsupported routes are greedy.
    ours = (docs, own, events, stock, logs, commands, files)
    modules = (*ours, lifecycle, templates, volumes, secrets, e2b)
    app = Starlette(
        routes=[route for module in modules for route in module.routes()],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False
    app.state.engine = engine
    app.state.leave = leave
    app.state.activity = activity
    app.state.idempotency = Keys()
    app.state.uploads = templates.Uploads.new()
    app.state.restart = False
    app.state.background = background
    return Gatekeeper(app, engine, activity)


async def _refuse(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return plain_failure(405, f"{request.method} is not possible here", "invalid_argument")
    return plain_failure(404, f"there is no {request.url.path}", "not_found")


def _too_many() -> Response:
    refusal = failure(LimitReached("too many requests", hint="wait a second"))
    # E2B's clients do so by themselves.
    refusal.headers.update({"Retry-After": "1", "Should-Retry": "true"})
    return refusal


class Gatekeeper:
    """Before any route: the raw path becomes the path, and the key is looked at."""

    def __init__(self, app: Starlette, engine: Engine, activity: Activity) -> None:
        self._app = app
        self._engine = engine
        self._activity = activity
        self._rate = Rate(engine.settings.requests_per_s)
        self._strangers = Rate(STRANGERS_PER_S)

    @property
    def inner(self) -> Starlette:
        """The app behind it, with the routes."""
        return self._app

    def lead_links(self, links: Links) -> None:
        """Say where links to files lead."""
        self._app.state.links = links

    @property
    def wants_restart(self) -> bool:
        """Whether the process shall start itself again after leaving."""
        return self._app.state.restart is True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        with self._activity:
            scope["path"] = scope["raw_path"].decode("ascii")
            if (refusal := await self._refuse(scope)) is not None:
                refusal.headers["connection"] = "close"  # whatever body is on its way
                await refusal(scope, receive, send)
                return
            await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further."""
        if scope["state"].get("local") is True:
            return None
        address = (scope.get("client") or ("",))[0]
        if await self._may_pass(scope):
            # Who shows no key, where none is asked for, is told by the address.
            caller = scope["state"].get("key") or f"at {address}"
            return None if self._rate.allows(caller) else _too_many()
        if not self._strangers.allows(address):
            return _too_many()
        return failure(
            Unauthenticated(
                "the API key is missing or wrong", hint="send it as the header X-API-KEY"
            )
        )

    async def _may_pass(self, scope: Scope) -> bool:
        if scope["path"] in OPEN:
            return True
        if scope["path"].startswith(volumes.PREFIX):  # judged there, by the volume's own token
            return True
        if scope["path"].startswith(templates.UPLOADS):
            return True  # its links carry a permission of their own
        given = set(given_secrets(scope["headers"]))
        if len(given) != 1:
            return False
        key = find_key(given.pop(), await self._engine.store.keys())
        if key is not None:
            scope["state"]["key"] = key.id
        return key is not None
