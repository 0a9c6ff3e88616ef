"""Passing bytes between a client and a guest until one of them is done.

Around a snapshot the sandbox closes every connection, and a client must not notice. So a connection
has a name that the agent knows it by (:data:`tupper.protocol.tunnel.CARRY_HEADER`). When the guest
says "no more" while its sandbox is held, we stop passing the client's bytes, let the guest have all
that is on its way, say "no more" too, and go on over a new connection once the sandbox is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

from tupper.core.errors import TupperError

_CHUNK = 256 * 1024
_FLUSH_S = 2.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Again = Callable[[], Awaitable[Streams | None]]


class Joint:
    """A client's connection, and the guest's, which may be replaced by another.

    Args:
        client: the client's streams.
        guest: the guest's.
        is_held: whether the sandbox closes connections now that will be continued.
        again: the guest's connection continued; None if it was over after all.
    """

    def __init__(
        self, client: Streams, guest: Streams, *, is_held: Callable[[], bool], again: Again
    ) -> None:
        self._client = client
        self.guest = guest
        self._is_held = is_held
        self._again = again
        self._client_is_done = False
        self.has_answered = False  # whether the client has had a byte of the guest's

    async def join(self) -> None:
        """Pass bytes both ways until the guest has said all, or either side breaks."""
        while await self._join_once():
            pass

    async def _join_once(self) -> bool:
        """Whether the guest's connection is another now, and there is more to pass."""
        client, guest = self._client, self.guest
        up = asyncio.ensure_future(self._pass_up())
        down = asyncio.ensure_future(pump(guest[0], client[1], passed=self._note_answer))
        try:
            done, _ = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down not in done and not up.result():
                return False  # the client's connection broke
            if not await down:
                reset(client[1])  # the guest's connection broke, so the client's breaks too
                return False
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        if self._is_held():
            await _let_flow_out(guest[1])
            try:
                fresh = await self._again()
            except (TupperError, OSError):
                reset(client[1])  # the guest did not come back; half an answer is no answer
                return False
            if fresh is not None:
                self.guest = fresh
                return True
        end(client[1])
        return False

    def _note_answer(self) -> None:
        self.has_answered = True

    async def _pass_up(self) -> bool:
        """The client's bytes; what was read of it is always written, also if this is cancelled."""
        reader, writer = self._client[0], self.guest[1]
        if not self._client_is_done:
            if not await pump(reader, writer):
                return False
            self._client_is_done = True
        end(writer)
        return True


async def pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    passed: Callable[[], object] = lambda: None,
) -> bool:
    """Pass bytes until the end, and tell of each piece. Returns whether the end was orderly."""
    try:
        while chunk := await reader.read(_CHUNK):
            passed()
            writer.write(chunk)
            await writer.drain()
    except OSError:
        return False
    return True


def end(writer: asyncio.StreamWriter) -> None:
    """Say "no more"."""
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


async def _let_flow_out(writer: asyncio.StreamWriter) -> None:
    """Close a connection after the other side has everything that was written to it."""
    end(writer)
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_FLUSH_S):
            await writer.wait_closed()


def reset(writer: asyncio.StreamWriter) -> None:
    """Cut a connection so that the other side sees a reset, not an end."""
    raw: object = writer.get_extra_info("socket")
    setter = cast("Callable[[int, int, bytes], None] | None", getattr(raw, "setsockopt", None))
    if setter is not None:
        with contextlib.suppress(OSError):
            setter(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
