# Made by tools/make_sync.py from _async/process.py. Do not edit.
"""The stream of a command's events, as reliable as it can be made.

A stream that says nothing for ``SILENCE_S`` although the agent promised a sign of life every
``KEEPALIVE_S`` is in trouble; so is one that breaks. Then the agent's health decides: if it
answers, the stream is attached again from the bytes that we have; if not, the exception says what
became of the sandbox. A healthy command may be silent for as long as it likes.

Time limits are the agent's to enforce: it ends the whole process tree. We only make sure that the
caller gets the answer, at the latest ``LATE_S`` after the limit.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import connect, envd
from tupper.sdk._io_sync import Reply
from tupper.sdk._shared import errors
from tupper.sdk._shared.link import LinkError, Trouble
from tupper.sdk._shared.result import Output
from tupper.sdk._sync.agent import PROCESS, Agent, user_header

KEEPALIVE_S = 4
SILENCE_S = 10.0
START_SILENCE_S = 14.0
LATE_S = 5.0
_ATTEMPTS = 5
_DRAIN_READS = 4


@dataclass(frozen=True, slots=True)
class Opening:
    """How a stream is opened.

    Args:
        message: the request of Start or Connect.
        timeout_s: of the command (Start) or of the stream (Connect); None for no limit.
        user: on whose behalf.
        is_start: whether the command is started, or exists.
        is_foreground: whether the command shall end when we go away.
        start_limit_s: seconds for the first event.
    """

    message: Mapping[str, object]
    timeout_s: float | None
    user: str | None = None
    is_start: bool = True
    is_foreground: bool = False
    start_limit_s: float | None = None

    @property
    def first_silence_s(self) -> float:
        """Seconds for the first event, however long the command may run."""
        limits = [START_SILENCE_S, self.start_limit_s, self.timeout_s and self.timeout_s + LATE_S]
        return min(limit for limit in limits if limit is not None and limit > 0)


@dataclass(slots=True)
class _Progress:
    offsets: dict[envd.Stream, int] = field(default_factory=dict[envd.Stream, int])
    fruitless: int = 0


class ProcessStream:
    """The events of one command, in order, each once.

    Args:
        agent: of the sandbox.
        opening: how to open it.
    """

    def __init__(self, agent: Agent, opening: Opening) -> None:
        self._agent = agent
        self._opening = opening
        limit = opening.timeout_s
        self._deadline = None if not limit else time.monotonic() + limit
        # The caller's own time between two events does not count: there may be much to read still.
        self._left_at = time.monotonic()
        self._late_at = math.inf if self._deadline is None else self._deadline + LATE_S
        self._is_stopped = False
        self._progress = _Progress()
        self._events = envd.ProcessEvents()
        self._decoder = connect.Decoder()
        self._pending: deque[connect.Envelope] = deque()
        self._reply: Reply | None = None
        self.pid = 0

    def open(self) -> None:
        """Start the command, or attach to it, and learn its pid.

        Errors:
            CommandExitException: the program cannot be started (127: not found, 126: not
            executable).
            NotFoundException: there is no such process to attach to.
        """
        try:
            self._connect(self._opening.message, is_start=self._opening.is_start)
        except LinkError as error:
            self.close()
            raise self._late(error) from error
        except BaseException:
            self.close()
            raise

    def next(self) -> Output | envd.ProcessEnd:
        """The next event; nothing may be asked for after the end.

        Errors:
            TimeoutException: the time limit is over (the command has been ended), or the sandbox
            is gone or unreachable, by subclass.
        """
        self._late_at += time.monotonic() - self._left_at
        try:
            return self._next()
        finally:
            self._left_at = time.monotonic()

    def _next(self) -> Output | envd.ProcessEnd:
        while True:
            self._check_deadline()
            try:
                event = self._step()
            except LinkError as error:
                self._recover(error)
                continue
            if isinstance(event, envd.ProcessEnd):
                self._drain()
                if self._is_out_of_time(event):
                    raise self._timed_out()
                return event
            placed = self._place(event)
            if placed is not None:
                return placed

    def stop(self) -> None:
        """Do not attach again: whoever reads is about to be cut off."""
        self._is_stopped = True

    def close(self) -> None:
        """Leave the stream. The command goes on unless it is a foreground one."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    @property
    def reply(self) -> Reply | None:
        """The answer that is being read, for whoever has to abort it from elsewhere."""
        return self._reply

    def _connect(self, message: Mapping[str, object], *, is_start: bool) -> None:
        headers = {"Keepalive-Ping-Interval": str(KEEPALIVE_S), **user_header(self._opening.user)}
        remaining = self._remaining()
        if remaining is not None:
            headers[connect.TIMEOUT_HEADER] = str(max(1, int(remaining * 1000)))
        if is_start and self._opening.is_foreground:
            headers["Tupper-Cancel"] = "kill"
        self._events = envd.ProcessEvents()
        self._decoder = connect.Decoder()
        self._pending.clear()
        silence_s = min(SILENCE_S, self._opening.first_silence_s)
        if is_start:
            silence_s = self._opening.first_silence_s
        self._reply = self._agent.stream(
            PROCESS + ("Start" if is_start else "Connect"),
            connect.render_message(message),
            headers,
            silence_s,
        )
        event = self._step()
        while isinstance(event, envd.KeepAlive):
            event = self._step()
        if not isinstance(event, envd.ProcessStart):
            raise errors.ProtocolException("the process stream does not begin with its start")
        self.pid = event.pid

    def _step(self) -> envd.ProcessEvent:
        """Read until one message is whole, and parse it."""
        try:
            while not self._pending:
                if self._reply is None:
                    raise LinkError(Trouble.BROKEN, "the stream is closed")
                data = self._reply.read()
                if not data:
                    raise LinkError(Trouble.BROKEN, "the stream ended without an end event")
                self._pending.extend(self._decoder.feed(data))
            envelope = self._pending.popleft()
            if isinstance(envelope, connect.Message):
                return self._events.accept(envelope.payload)
        except GuestMisbehaved as error:
            raise errors.ProtocolException(error.message) from error
        if envelope.error is not None:
            raise self._reported(envelope.error)
        raise LinkError(Trouble.BROKEN, "the stream ended without an end event")

    def _reported(self, error: connect.ConnectError) -> Exception:
        """What the agent says about the command, as an exception."""
        failure = connect.as_object(error.details.get("tupper.StartFailure"))
        code = None if failure is None else failure.get("exitCode")
        if isinstance(code, int) and 0 < code < 256:
            return errors.CommandExitException(error.message, "", code, error.message)
        if error.code is connect.Code.DEADLINE_EXCEEDED:
            return self._timed_out()
        if error.code is connect.Code.UNAVAILABLE:
            return LinkError(Trouble.BROKEN, error.message)
        return errors.from_connect(error)

    def _place(self, event: envd.ProcessEvent) -> Output | None:
        """Put a piece behind what we have: cut what we know, note what is lost."""
        self._progress.fruitless = 0
        if isinstance(event, envd.ProcessGap):
            have = self._progress.offsets.get(event.stream, 0)
            self._progress.offsets[event.stream] = have + event.size
            return Output(event.stream, b"", event.size)
        return self._place_data(event) if isinstance(event, envd.ProcessData) else None

    def _place_data(self, event: envd.ProcessData) -> Output | None:
        have = self._progress.offsets.get(event.stream)
        start = event.offset
        if start is None:
            self._progress.offsets[event.stream] = (have or 0) + len(event.data)
            return Output(event.stream, event.data)
        data, gap = event.data, 0
        if have is not None and start < have:
            data = data[have - start :]
        elif have is not None:
            gap = start - have
        elif self._opening.is_start:
            gap = start
        self._progress.offsets[event.stream] = max(have or 0, start + len(event.data))
        return Output(event.stream, data, gap) if data or gap else None

    def _recover(self, error: LinkError) -> None:
        """Attach again if the sandbox is well; otherwise say what became of it."""
        self.close()
        self._check_deadline()
        self._check_stopped()
        self._progress.fruitless += 1
        if self._progress.fruitless > _ATTEMPTS:
            raise self._agent.explain(error)
        try:
            healthy = self._agent.is_well()
        except LinkError:
            healthy = False
        if not healthy:
            raise self._late(error)
        have = self._progress.offsets
        offsets = dict.fromkeys(envd.Stream, 0) if self._opening.is_start else {}
        selector = envd.render_selector(self.pid)
        try:
            self._connect(envd.render_attach(selector, offsets | have), is_start=False)
        except LinkError as second:
            if second.trouble is Trouble.SILENT:
                self.close()
                raise self._late(second) from second
            self._recover(second)  # it may be saved once more by now
        if self._is_stopped:
            self.close()
        self._check_stopped()

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise errors.SandboxException(f"disconnected from process {self.pid}")

    def _late(self, error: LinkError) -> Exception:
        if self._deadline is not None and time.monotonic() > self._deadline + LATE_S - 1.0:
            return self._timed_out()
        return self._agent.explain(error)

    def _remaining(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _drain(self) -> None:
        """Read what follows the end event, so that the connection can be used again."""
        reply = self._reply
        try:
            for _ in range(_DRAIN_READS):
                if reply is None or not reply.read():
                    return
        except LinkError:
            return  # the result is whole; only the connection is lost

    def _is_out_of_time(self, end: envd.ProcessEnd) -> bool:
        """The end of the killed command may overtake the end of the call."""
        return self._deadline is not None and end.limit in ("time", "timeout")

    def _check_deadline(self) -> None:
        if time.monotonic() > self._late_at:
            raise self._timed_out()

    def _timed_out(self) -> errors.TimeoutException:
        limit = self._opening.timeout_s or 0
        what = f"process {self.pid}" if self.pid else "the command"
        ended = " and was ended" if self._opening.is_start else ""
        return errors.TimeoutException(
            f"{what} reached its time limit of {limit:g} s{ended}",
            hint="timeout=… gives it more seconds, timeout=0 no limit",
        )
