"""What a connection meets first: uvicorn's HTTP protocol, with a look at each request's head.

A request for the control plane goes on to uvicorn as if nobody had looked. One for a sandbox takes
its connection out of uvicorn's hands (:mod:`tupper.server.proxy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tupper.engine import Engine
from tupper.server.head import MAX_HEAD, parse_head
from tupper.server.proxy import find_target, serve_stream

if TYPE_CHECKING:
    from tupper.server.activity import Activity


class Front(H11Protocol):
    """One client's connection."""

    def __init__(
        self,
        engine: Engine,
        activity: Activity,
        config: Config,
        state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        super().__init__(config, state, app_state)
        self._engine = engine
        self._activity = activity
        self._head = bytearray()

    def data_received(self, data: bytes) -> None:
        """Look at it if a request begins here, then pass it on."""
        if not self._is_between_requests():
            super().data_received(data)
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= MAX_HEAD:
            return
        seen = bytes(self._head)
        self._head.clear()
        if end < 0 or not self._take(seen[: end + 4], seen[end + 4 :]):
            super().data_received(seen)

    def _is_between_requests(self) -> bool:
        if self._head:
            return True
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _take(self, raw: bytes, rest: bytes) -> bool:
        head = parse_head(raw)
        destination = find_target(self._engine, head) if head is not None else None
        if head is None or destination is None:
            return False
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        task = self.loop.create_task(
            serve_stream(self._engine, self.transport, head, destination, rest),
            name=f"proxy {destination.sandbox_id}:{destination.port}",
        )
        self._activity.own(task)
        return True
