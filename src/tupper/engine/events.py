"""What happens to sandboxes, for whoever listens.

One ring in memory holds the latest events, and a listener is no more than a number: that of the
last event it has seen. So nothing is kept for a slow listener, nothing waits for it, and one that
was away for a moment goes on where it was. When the ring has moved on, or when another process
has taken this one's place, it is told that it may have missed something.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tupper.core.sandbox import SandboxRecord

KEPT = 1000


class Kind(StrEnum):
    """What happened."""

    CREATED = "created"  # it takes commands
    PAUSED = "paused"
    RESUMED = "resumed"
    ENDED = "ended"
    LOST = "lost"  # to nobody's sandbox: events are missing here


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Args:
        number: counts up by one.
        kind: what happened.
        at: unix seconds.
        sandbox_id, name, template, image, metadata, owner_key: of the sandbox.
        reason, detail: why it ended.
    """

    number: int
    kind: Kind
    at: float
    sandbox_id: str = ""
    name: str = ""
    template: str = ""
    image: str = ""
    metadata: Mapping[str, str] | None = None
    owner_key: str = ""
    reason: str = ""
    detail: str = ""


class Events:
    """The latest events of an engine.

    Args:
        kept: how many.

    Attributes:
        mark: tells one process's numbers from another's.
        is_closed: no more will come.
    """

    def __init__(self, *, kept: int = KEPT) -> None:
        self.mark = secrets.token_hex(6)
        self.is_closed = False
        self._ring: deque[Event] = deque(maxlen=kept)
        self._last = 0
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._last

    def publish(self, kind: Kind, record: SandboxRecord) -> None:
        """Tell of a user's sandbox; those that builds work in are nobody's business."""
        if record.purpose:
            return
        self._last += 1
        self._ring.append(
            Event(
                number=self._last,
                kind=kind,
                at=time.time(),
                sandbox_id=record.id,
                name=record.name,
                template=record.template,
                image=record.image,
                metadata=dict(record.metadata),
                owner_key=record.owner_key,
                reason=str(record.end_reason or ""),
                detail=record.end_detail,
            )
        )
        self._wake()

    def close(self) -> None:
        """Let all listeners go."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, number: int) -> list[Event]:
        """What came after an event; begins with ``lost`` if some of that is gone already."""
        first = self._ring[0].number if self._ring else self._last + 1
        found = [event for event in self._ring if event.number > number]
        if number < first - 1:
            return [Event(first - 1, Kind.LOST, time.time()), *found]
        return found

    async def wait(self, number: int) -> None:
        """Return when something came after an event, or nothing will any more."""
        while self._last <= number and not self.is_closed:
            await self._news.wait()

    def find(self, place: str) -> int:
        """The number that a listener goes on after; -1 if it may have missed something.

        Args:
            place: as :meth:`place_of` made it, perhaps in another process.
        """
        mark, _, number = place.rpartition("-")
        if mark != self.mark or not (number.isascii() and number.isdigit() and len(number) < 16):
            return -1
        return min(int(number), self._last)

    def place_of(self, number: int) -> str:
        """Names the place after an event, for a listener that may come back."""
        return f"{self.mark}-{number}"
