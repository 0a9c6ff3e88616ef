"""``GET /tupper/v1/events``: what happens to sandboxes, as server-sent events.

The stream begins with the place it begins at, so that also a listener that has seen nothing yet
can come back to it: ``Last-Event-ID`` says where to go on. A key hears of its own sandboxes.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, 9.2.6: an ``id`` without
data is remembered and starts no event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tupper.core.errors import InvalidArgument
from tupper.engine.events import Event, Events, Kind
from tupper.protocol import e2b
from tupper.server.http import caller_of, engine_of, guarded
from tupper.server.own import PREFIX

PING_S = 15.0


def routes() -> list[Route]:
    """The route."""
    return [Route(f"{PREFIX}/events", guarded(_events), methods=["GET"])]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a listener hears.

    Args:
        sandbox_id: of this sandbox; empty for all.
        metadata: of sandboxes with all of these labels.
        kinds: of these kinds; empty for all.
        owner_key: of this API key's sandboxes; None for everybody's.
    """

    sandbox_id: str
    metadata: Mapping[str, str]
    kinds: frozenset[Kind]
    owner_key: str | None

    def has(self, event: Event) -> bool:
        """Whether an event is among them; that some are missing concerns everybody."""
        if event.kind is Kind.LOST:
            return True
        labels = event.metadata or {}
        return (
            self.sandbox_id in ("", event.sandbox_id)
            and self.owner_key in (None, event.owner_key)
            and (not self.kinds or event.kind in self.kinds)
            and all(labels.get(key) == value for key, value in self.metadata.items())
        )


async def _events(request: Request) -> Response:
    engine, q = engine_of(request), request.query_params
    owner_key, reference = caller_of(request), q.get("sandbox", "")
    wanted = Wanted(
        sandbox_id=await engine.resolve(reference, owner_key) if reference else "",
        metadata=e2b.parse_metadata_filter(q.get("metadata", "")),
        kinds=parse_kinds(q.get("type", "")),
        owner_key=owner_key,
    )
    place = request.headers.get("last-event-id", "")
    begin = engine.events.find(place) if place else engine.events.last
    return StreamingResponse(
        _stream(engine.events, begin, wanted),
        headers={"Cache-Control": "no-store"},
        media_type="text/event-stream",
    )


def parse_kinds(text: str) -> frozenset[Kind]:
    """Kinds, joined with commas."""
    known = {str(kind): kind for kind in Kind}
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise InvalidArgument(f"{name!r} is no type of event", hint=", ".join(known))
    return frozenset(known[name] for name in names)


async def _stream(events: Events, number: int, wanted: Wanted) -> AsyncIterator[bytes]:
    yield f"id: {events.place_of(number)}\n\n".encode()
    while not events.is_closed:
        for event in events.since(number):
            number = event.number
            if wanted.has(event):
                yield render_event(event, events.place_of(number))
        try:
            async with asyncio.timeout(PING_S):
                await events.wait(number)
        except TimeoutError:
            yield b": nothing new\n\n"


def render_event(event: Event, place: str) -> bytes:
    """An event as it goes over the wire."""
    data: dict[str, object] = {"type": str(event.kind), "timestamp": e2b.render_time(event.at)}
    if event.kind is not Kind.LOST:
        data |= {
            "sandboxID": event.sandbox_id,
            "name": event.name or None,
            "templateID": event.template,
            "image": event.image or None,
            "metadata": dict(event.metadata or {}),
        }
    if event.kind is Kind.ENDED:
        data |= {"reason": event.reason, "detail": event.detail}
    return f"id: {place}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n".encode()
