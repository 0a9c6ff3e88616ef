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
        self._unused = asyncio.Event()
        self._open = asyncio.Event()
        self._unused.set()
        self._open.set()

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[None]:
        """Nothing is removed inside."""
        while not self._open.is_set():
            await self._open.wait()
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Nobody uses inside."""
        while self._users or not self._open.is_set():
            await self._open.wait()
            await self._unused.wait()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()
