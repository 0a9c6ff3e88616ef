"""What a connection meets first: uvicorn's HTTP protocol, with a look at each request's head.

A request for the control plane goes on to uvicorn as if nobody had looked. One for a sandbox takes
its connection out of uvicorn's hands (:mod:`tupper.server.proxy`).

Callers from the network have shown no key yet: a head has a deadline, and there is a bound on their
connections, so that they cannot use up the descriptors that this user's own callers need.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tupper.engine import Engine
from tupper.server.head import MAX_HEAD, parse_head
from tupper.server.limits import most_files
from tupper.server.proxy import find_target, serve_stream

if TYPE_CHECKING:
    from tupper.server.activity import Activity

# From a head's first byte to its last.
HEAD_S = 30.0
# From the connection to the first byte. Clients open one ahead of need, and a request that they
# send on it just when we close it is lost; so as long as they keep one, as between two requests.
SILENT_S = 640.0
# For what still comes after a refusal.
LINGER_S = 2.0


def _most_strangers() -> float:
    """Half of all descriptors that this process may have."""
    most = most_files()
    return most / 2 if most > 0 else math.inf


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
        self._is_local = app_state.get("local") is True
        self._is_refused = False
        self._is_over = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one stranger too many; give others some time to say what they want."""
        if not self._is_local and len(self.connections) >= _most_strangers():
            self._is_refused = True
            transport.abort()
            return
        super().connection_made(transport)
        # With many of them, silence is no longer harmless.
        self._expect_head(SILENT_S if len(self.connections) < _most_strangers() / 2 else HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._got_head()
        if not self._is_refused:
            super().connection_lost(exc)

    def _expect_head(self, within_s: float) -> None:
        if self._deadline is None and not self._is_local:
            self._deadline = self.loop.call_later(within_s, self.transport.abort)

    def _got_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Look at it if a request begins here, then pass it on."""
        if self._is_over:
            return
        if not self._is_between_requests():
            super().data_received(data)
            self._mind_pipelined_head()
            return
        if not self._head:
            self._got_head()  # what was waited for was the first byte
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= MAX_HEAD:
            self._expect_head(HEAD_S)
            return
        self._got_head()
        seen = bytes(self._head)
        self._head.clear()
        if end > MAX_HEAD or end < 0:
            self._say(
                431,
                b"Request Header Fields Too Large",
                f"the head of the request has more than {MAX_HEAD} bytes",
            )
        elif not self._take(seen[: end + 4], seen[end + 4 :]):
            super().data_received(seen)
            self._mind_pipelined_head()

    def send_400_response(self, msg: str) -> None:
        """The answer to what is not HTTP, in the shape of all our errors."""
        self._say(400, b"Bad Request", msg)

    def _say(self, status: int, phrase: bytes, message: str) -> None:
        said = {"code": status, "message": message, "error_code": "invalid_argument"}
        body = json.dumps(said).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (status, phrase, len(body), body)
        )
        # Closed at once, with bytes of the client's unread, the answer would be lost to a reset.
        self._is_over = True
        self._got_head()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(LINGER_S, self.transport.abort)

    def eof_received(self) -> None:
        """Tell who stopped in the middle of a request; who has said all of it may just be gone."""
        if self._is_over:
            return
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        if self._head:
            self._got_head()
            self._head.clear()
            self.send_400_response("the request ends inside its head")
        elif cycle is not None and cycle.more_body and not cycle.response_started:
            self.send_400_response("the body is shorter than it was announced")

    def on_response_complete(self) -> None:
        """The next request may have begun to come already."""
        super().on_response_complete()
        self._mind_pipelined_head()

    def _mind_pipelined_head(self) -> None:
        if self._is_over:
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._expect_head(HEAD_S)
        else:
            self._got_head()

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
