"""Serving clients over streamable HTTP.

On loopback anybody on this machine who can connect may use it, unless there is a token; a page in
a browser may not: the Host and the Origin of each request are checked. On any other address a token
is compulsory.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from mcp.server import MCPServer
from mcp.server.streamable_http import EventStore
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tupper.sdk._shared.errors import InvalidArgumentException

PATH = "/mcp"
BODY_MAX = 64 * 1024 * 1024
SESSION_IDLE_S = 1800.0
RETRY_MS = 500
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_LAST_ANSWERS_S = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and who may come.

    Args:
        host, port: of the socket; 0 for any port.
        token: that each request must bring; empty for none.
        hosts: more names by which clients may call it.
        origins: of web pages that may use it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


class Bearer:
    """Lets requests with the token through.

    Args:
        app: what they reach.
        token: the secret.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode()
            if not hmac.compare_digest(given, self._expected):
                headers = {"WWW-Authenticate": "Bearer"}
                answer = PlainTextResponse("a bearer token is needed\n", 401, headers)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def check(place: Place) -> None:
    """Refuse to be open to a network.

    Errors:
        InvalidArgumentException: not on loopback and without a token.
    """
    if not place.is_loopback and not place.token:
        raise InvalidArgumentException(
            f"{place.host} can be reached from other machines: a token is needed",
            hint="set TUPPER_MCP_TOKEN, or give --token-file",
        )


def build_app(server: MCPServer, place: Place, events: EventStore | None = None) -> ASGIApp:
    """The application: transport, checks of Host and Origin, token.

    Args:
        server: with its tools.
        place: who may come.
        events: keeps what clients that lose a stream can ask for again; without, they call again.
    """
    names = [*_LOOPBACK, *place.hosts]
    if not place.is_loopback:
        names += [place.host, socket.gethostname()]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*(f"http://{name}:*" for name in _LOOPBACK), *place.origins],
    )
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=security,
        max_request_body_size=BODY_MAX,
        session_idle_timeout=SESSION_IDLE_S,
        event_store=events,
        retry_interval=RETRY_MS if events else None,
    )
    return Bearer(app, place.token) if place.token else app


def serve(
    server: MCPServer,
    place: Place,
    ready: Callable[[str], None],
    *,
    events: EventStore | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; then all sandboxes of all clients end.

    Args:
        server: with its tools.
        place: where.
        ready: gets the URL when it listens.
        events: as for :func:`build_app`.
    """
    check(place)
    with _listen(place) as listener:
        port = listener.getsockname()[1]
        host = f"[{place.host}]" if ":" in place.host else place.host
        config = uvicorn.Config(
            build_app(server, place, events),
            log_level="warning",
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
        )
        ready(f"http://{host}:{port}{PATH}")
        uvicorn.Server(config).run(sockets=[listener])


def _listen(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    return socket.create_server((place.host.strip("[]"), place.port), family=family)
