"""An address of HTTP for links to files, for sandboxes that are otherwise reached over a socket.

Opened on 127.0.0.1 when the first link is asked for. What comes in there is judged as on any TCP
address of ours: a link carries its own signature, everything else needs an API key. The number is
written down and taken again by the next process, so that links outlive a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from starlette.requests import Request

from tupper.core.errors import AlreadyExists
from tupper.core.paths import Paths
from tupper.server.listen import Listeners, bind_tcp

_HOST = "127.0.0.1"
_ALL = "0.0.0.0"  # noqa: S104 - compared with, not bound to


class Links:
    """Where links lead.

    Args:
        paths: ``runtime/links`` holds the number.
        listeners: gets the new one.
        public: what listens already; one on the loopback will do.
        domain: as for the others; None for ``localhost:PORT``.
    """

    def __init__(
        self,
        paths: Paths,
        listeners: Listeners,
        public: Sequence[socket.socket],
        domain: str | None,
    ) -> None:
        self._file = paths.runtime / "links"
        self._listeners = listeners
        self._domain = domain
        self._lock = asyncio.Lock()
        names = [listener.getsockname() for listener in public]
        self._port = next((name[1] for name in names if name[0] in (_HOST, _ALL)), 0)

    async def url(self) -> str:
        """The beginning of links; listens from now on."""
        async with self._lock:
            if not self._port:
                self._port = await self._open()
        return f"http://{_HOST}:{self._port}"

    async def resume(self) -> None:
        """Listen again if the process before did."""
        if self._file.exists():
            await self.url()

    async def _open(self) -> int:
        try:
            listener = bind_tcp(f"{_HOST}:{self._last()}")
        except AlreadyExists:
            listener = bind_tcp(f"{_HOST}:0")
        port = int(listener.getsockname()[1])
        domain = self._domain or f"localhost:{port}"
        await self._listeners.add(listener, local=False, domain=domain)
        self._file.write_text(f"{port}\n")
        return port

    def _last(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            number = int(self._file.read_text())
            if 0 < number < 65536:
                return number
        return 0


def links_of(request: Request) -> Links:
    """The links of the app that serves a request."""
    links = request.app.state.links
    if not isinstance(links, Links):
        raise TypeError("the app has no place for links")
    return links
