"""Points in time at which something is due: one heap, one timer, nothing while nothing is due."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

# A wall clock can be set. The timer sleeps no longer than this before it looks again.
_LOOK_AGAIN_S = 600.0

_K = TypeVar("_K", bound=Hashable)


class Deadlines(Generic[_K]):
    """Calls back when a key's time has come, once for each time set.

    Args:
        due: called in the event loop with the key; must not block.
        now: the clock, unix seconds.
    """

    def __init__(self, due: Callable[[_K], None], now: Callable[[], float] = time.time) -> None:
        self._due = due
        self._now = now
        self._times: dict[_K, float] = {}
        self._heap: list[tuple[float, int, _K]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, key: _K, when: float | None) -> None:
        """Set a key's time, or take it away with None. Replaces an earlier one."""
        if when is None:
            self._times.pop(key, None)
        else:
            self._times[key] = when
            self._count += 1
            heapq.heappush(self._heap, (when, self._count, key))
        self._arm()

    def close(self) -> None:
        """Forget all."""
        self._times.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Entries that were replaced or taken away stay in the heap until they come up.
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            wait_s = min(max(self._heap[0][0] - self._now(), 0.0), _LOOK_AGAIN_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        ready: list[_K] = []
        while self._heap and self._heap[0][0] <= self._now():
            when, _, key = heapq.heappop(self._heap)
            if self._times.get(key) == when:
                del self._times[key]
                ready.append(key)
        self._arm()
        for key in ready:
            self._due(key)
