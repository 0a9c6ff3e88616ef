"""The stream of a watch's events. The sync half asks for events instead (``GetWatcherEvents``)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import connect, envd
from tupper.sdk._async.agent import FILESYSTEM, Agent, user_header
from tupper.sdk._async.process import KEEPALIVE_S, LATE_S, SILENCE_S
from tupper.sdk._io_async import Reply
from tupper.sdk._shared import errors
from tupper.sdk._shared.info import event_from_envd
from tupper.sdk._shared.link import LinkError, Trouble
from tupper.sdk._shared.types import FilesystemEvent


class WatchStream:
    """The events of one watch.

    A watch whose connection breaks cannot be attached again, for events would be missing: it ends
    with an error.

    Args:
        agent: of the sandbox.
        message: the request of WatchDir.
        user: on whose behalf.
        timeout_s: seconds to watch; None for no limit.
    """

    def __init__(
        self,
        agent: Agent,
        message: Mapping[str, object],
        user: str | None,
        timeout_s: float | None,
    ) -> None:
        self._agent = agent
        self._message = message
        self._user = user
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._decoder = connect.Decoder()
        self._pending: deque[connect.Envelope] = deque()
        self._reply: Reply | None = None

    async def open(self) -> None:
        """Start to watch; returns when the watch is armed."""
        headers = {"Keepalive-Ping-Interval": str(KEEPALIVE_S), **user_header(self._user)}
        if self._timeout_s is not None:
            headers[connect.TIMEOUT_HEADER] = str(max(1, int(self._timeout_s * 1000)))
        try:
            self._reply = await self._agent.stream(
                FILESYSTEM + "WatchDir", connect.render_message(self._message), headers, SILENCE_S
            )
            while not isinstance(await self._step(), envd.WatchStart):
                pass
        except LinkError as error:
            await self.close()
            raise await self._agent.explain(error) from error
        except BaseException:
            await self.close()
            raise

    async def next(self) -> FilesystemEvent | None:
        """The next event; None when the time of the watch is over."""
        try:
            while True:
                message = await self._step()
                if message is None:
                    return None
                if isinstance(message, envd.FilesystemEvent):
                    event = event_from_envd(message)
                    if event is not None:
                        return event
                if self._deadline is not None and time.monotonic() > self._deadline + LATE_S:
                    return None
        except errors.TimeoutException:
            if self._deadline is not None and time.monotonic() >= self._deadline - 1:
                return None
            raise
        except LinkError as error:
            raise await self._agent.explain(error) from error

    async def close(self) -> None:
        """Stop watching."""
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()

    async def _step(self) -> envd.WatchEvent | None:
        try:
            while not self._pending:
                data = b"" if self._reply is None else await self._reply.read()
                if not data:
                    raise LinkError(Trouble.BROKEN, "the watch ended")
                self._pending.extend(self._decoder.feed(data))
            envelope = self._pending.popleft()
            if isinstance(envelope, connect.Message):
                return envd.parse_watch_message(envelope.payload)
        except GuestMisbehaved as error:
            raise errors.ProtocolException(error.message) from error
        if envelope.error is not None:
            raise errors.from_connect(envelope.error, missing=errors.FileNotFoundException)
        return None
