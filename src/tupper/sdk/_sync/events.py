# Made by tools/make_sync.py from _async/events.py. Do not edit.
"""Following what happens to sandboxes.

The connection may break at any time, such as when the background process makes room for a newer
one: the listener comes back to the same place and misses nothing. It waits for a while for somebody
to answer there, and starts no background process itself: whoever ended that meant it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Self

from tupper.core.errors import GuestMisbehaved
from tupper.protocol.connect import as_object
from tupper.protocol.sse import Decoder
from tupper.sdk._io_sync import Http, Reply, sleep
from tupper.sdk._shared import errors
from tupper.sdk._shared.events import SandboxEvent, parse_event
from tupper.sdk._shared.link import Ask, LinkError, Trouble
from tupper.sdk._sync.control import Control

_PATH = "/tupper/v1/events"
# The server says something at least every 15 s.
_SILENCE_S = 60.0
_PAUSE_S = 0.2
_ATTEMPTS = 50


class SandboxEvents:
    """What happens to sandboxes, as it happens: an iterator of :class:`SandboxEvent`.

    Made by ``Sandbox.events()``. It has no end of its own; close it, or use it as a context
    manager::

        with Sandbox.events() as events:
            for event in events:
                print(event.type, event.sandbox_id)

    Args:
        control: the control plane.
        query: which events.
    """

    def __init__(self, control: Control, query: Mapping[str, str]) -> None:
        self._control = control
        self._query = query
        self._decoder = Decoder()
        self._ready: list[SandboxEvent] = []
        self._http: Http | None = None
        self._reply: Reply | None = None
        self._closed = False

    def open(self) -> Self:
        """Begin to listen: what happens from now on will be told.

        Errors:
            SandboxNotFoundException: there is no such sandbox.
            UnavailableException: the server cannot be reached.
        """
        self._control.connect()
        try:
            self._subscribe()
        except (LinkError, OSError) as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise
        return self

    def __iter__(self) -> Iterator[SandboxEvent]:
        """Itself."""
        return self

    def __next__(self) -> SandboxEvent:
        """The next event; waits for it.

        Errors:
            UnavailableException: the connection broke and nobody has answered again in time.
        """
        while not self._ready:
            if self._closed:
                raise StopIteration
            piece = self._read()
            if not piece and not self._closed:
                self._come_back()
                continue
            try:
                messages = self._decoder.feed(piece)
            except GuestMisbehaved as error:
                raise errors.ProtocolException(error.message) from error
            found = [parse_event(message.data) for message in messages]
            self._ready += [event for event in found if event is not None]
        return self._ready.pop(0)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        self._closed = True
        self._hang_up()
        self._control.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _read(self) -> bytes:
        """The next bytes; empty when the connection is over, however that came."""
        if self._reply is None:
            return b""
        with contextlib.suppress(LinkError):
            return self._reply.read()
        return b""

    def _subscribe(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._decoder.place:
            headers["Last-Event-ID"] = self._decoder.place
        self._decoder.restart()
        self._http = Http(self._control.target.origin())
        reply = self._http.open(Ask("GET", _PATH, self._query, headers, _SILENCE_S))
        if reply.status >= 300:
            body = reply.read_all()
            reply.close()
            raise errors.from_control(reply.status, _problem(body))
        self._reply = reply
        while not self._decoder.place:
            # Nothing that happens after this is missed.
            piece = reply.read()
            if not piece:
                raise LinkError(Trouble.BROKEN, "the stream ends where it begins")
            self._decoder.feed(piece)

    def _come_back(self) -> None:
        for attempt in range(_ATTEMPTS):
            self._hang_up()
            try:
                self._subscribe()
            except (LinkError, OSError) as error:
                if attempt + 1 == _ATTEMPTS:
                    self.close()
                    raise self._failure(error) from error
                sleep(_PAUSE_S)
            else:
                return

    def _hang_up(self) -> None:
        reply, self._reply = self._reply, None
        http, self._http = self._http, None
        if reply is not None:
            reply.close()
        if http is not None:
            http.close()

    def _failure(self, error: Exception) -> errors.UnavailableException:
        where = self._control.target.url or "the background process"
        return errors.UnavailableException(
            f"cannot follow events of {where}: {error}", code="daemon_unavailable"
        )


def _problem(body: bytes) -> dict[str, object] | None:
    try:
        return as_object(json.loads(body))
    except ValueError:
        return None
