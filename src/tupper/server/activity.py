"""When somebody last wanted something of the background process, and what is under way."""

from __future__ import annotations

import asyncio
import time


class Activity:
    """Counts what is under way and remembers when the last of it was."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._last = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last activity; 0 while something is under way."""
        if self._tasks or self._requests:
            return 0.0
        return time.monotonic() - self._last

    def own(self, task: asyncio.Task[None]) -> None:
        """Count a task until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._last = time.monotonic()

    def __enter__(self) -> None:
        self._requests += 1

    def __exit__(self, *_: object) -> None:
        self._requests -= 1
        self._last = time.monotonic()

    async def finish(self, *, timeout_s: float) -> None:
        """Wait for the tasks, then cancel those that are left."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
