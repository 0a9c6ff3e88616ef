"""Listening sockets, and who answers on them.

The private socket is made by us, 0600 in a 0700 directory, before anybody can connect. There is no
uvicorn server here, only its protocol: its server looks at the clock ten times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from tupper.core.errors import AlreadyExists, InvalidArgument
from tupper.engine import Engine
from tupper.server.activity import Activity
from tupper.server.front import Front

_KEEP_ALIVE_S = 640
_BACKLOG = 1024


def bind_private(path: Path) -> socket.socket:
    """A unix socket for this user alone. A left-over of a dead process is replaced."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode is set before listen(): until then nobody can connect.
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def bind_tcp(address: str) -> socket.socket:
    """A TCP socket for ``host:port``.

    Raises:
        InvalidArgument: it is no address.
        AlreadyExists: the port is taken.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise InvalidArgument(f"{address!r} is not HOST:PORT")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise AlreadyExists(
            f"cannot listen on {address}: {os.strerror(error.errno or 0)}"
        ) from error
    return listener


@dataclass(slots=True)
class Listeners:
    """Everything that listens.

    Args:
        engine: what it serves.
        app: the control plane.
        activity: is told of streams.
        state: uvicorn's connections and tasks.
        servers: the listening sockets.
    """

    engine: Engine
    app: ASGIApp
    activity: Activity
    state: ServerState = field(default_factory=ServerState)
    servers: list[asyncio.Server] = field(default_factory=list[asyncio.Server])

    async def add(self, listener: socket.socket, *, local: bool, domain: str | None) -> None:
        """Answer on a socket.

        Args:
            listener: bound and listening.
            local: callers are this user, on this machine.
            domain: goes into E2B's answers, for host names of ports.
        """
        config = Config(
            self.app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            server_header=False,
            date_header=False,
        )
        config.load()
        facts = {"local": local, "domain": domain}

        def front() -> Front:
            return Front(self.engine, self.activity, config, self.state, facts)

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(front, sock=listener, backlog=_BACKLOG))

    def refuse(self) -> None:
        """Accept no more connections."""
        for server in self.servers:
            server.close()

    async def finish(self, *, timeout_s: float) -> None:
        """Let requests that are under way end, then cut every connection."""
        self.refuse()
        for connection in list(self.state.connections):
            connection.shutdown()
        if self.state.tasks:
            await asyncio.wait(set(self.state.tasks), timeout=timeout_s)
        for task in list(self.state.tasks):
            task.cancel()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
        for connection in list(self.state.connections):
            connection.transport.abort()
