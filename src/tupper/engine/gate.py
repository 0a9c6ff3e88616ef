"""A gate between those who use images and those who remove them.

Any number of sandboxes may be on their way from "the image is stored" to "the record says it is
in use"; a removal runs only while none is, and holds the next ones back for its short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Gate:
    """Many users, or one remover."""

    def __init__(self) -> None:
        self._users = 0
        self._closed = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[None]:
        """Nothing is removed inside."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._users += 1
        try:
            yield
        finally:
            # No await: must also happen when we are cancelled.
            self._users -= 1
            self._wake()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Nobody uses inside."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed and not self._users)
            self._closed = True
        try:
            yield
        finally:
            self._closed = False
            self._wake()

    def _wake(self) -> None:
        async def wake() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.ensure_future(wake())
        self._waking = task
