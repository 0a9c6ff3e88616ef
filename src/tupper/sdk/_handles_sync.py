"""Handles of commands and watches for the sync half. Hand-written; twin of ``_handles_async``.

A thread reads the events as they come, so a command never waits for its caller: one that fills its
output while the caller writes its input cannot lock up. What the caller has not taken is kept
within the limit of the output. Once the caller iterates, the thread waits for it instead, so that
nothing is lost. Callbacks run in the thread that waits.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic

from tupper.protocol import envd
from tupper.sdk._shared.errors import SandboxException
from tupper.sdk._shared.output import MAX_OUTPUT_BYTES
from tupper.sdk._shared.result import Collector, Output, Piece
from tupper.sdk._shared.types import CommandResult, FilesystemEvent, OutputT

if TYPE_CHECKING:
    from tupper.sdk._sync.process import ProcessStream

Callbacks = tuple[
    Callable[[str], object] | None,
    Callable[[str], object] | None,
    Callable[[bytes], object] | None,
]
_AHEAD_BYTES = 4 * 1024 * 1024  # that the thread reads before an iterating caller


def emit(callbacks: Callbacks, piece: Piece) -> None:
    """Hand a piece of output to whoever wants it."""
    for callback, part in zip(callbacks, piece, strict=True):
        if callback is not None and part is not None:
            callback(part)  # type: ignore[arg-type]


class _Pump:
    """The thread that reads a command's events, and the queue to its caller.

    Args:
        stream: the events, open.
        limit: bytes that are kept for a caller who does not take them.
    """

    def __init__(self, stream: ProcessStream, limit: int) -> None:
        self.stream = stream
        self.is_followed = False
        self._limit = limit
        self._queue: deque[Output | envd.ProcessEnd] = deque()
        self._size = 0
        self._lost: dict[envd.Stream, int] = {}
        self._failure: Exception | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"tupper-command-{stream.pid}", daemon=True
        )
        self._thread.start()

    def next(self) -> Output | envd.ProcessEnd:
        """The next event; waits for it."""
        with self._changed:
            while not self._queue:
                if self._ended:
                    raise self._failure or SandboxException(
                        f"disconnected from process {self.stream.pid}"
                    )
                self._changed.wait()
            event = self._queue.popleft()
            self._changed.notify_all()
            if isinstance(event, envd.ProcessEnd):
                return event
            self._size -= len(event.data)
            if gap := self._lost.pop(event.stream, 0):
                return Output(event.stream, event.data, event.gap + gap)
            return event

    def abort(self) -> None:
        """End the thread; a read that waits ends at once."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self.stream.stop()
        reply = self.stream.reply
        if reply is not None:
            reply.abort()

    def join(self) -> None:
        """Wait for the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while not self._ended:
                event = self.stream.next()
                self._put(event)
                if isinstance(event, envd.ProcessEnd):
                    return
        except Exception as error:  # noqa: BLE001 - next() raises it in its caller
            if not self._ended:
                self._failure = error
        finally:
            self.stream.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, event: Output | envd.ProcessEnd) -> None:
        with self._changed:
            while self.is_followed and self._size > _AHEAD_BYTES and not self._ended:
                self._changed.wait()
            self._queue.append(event)
            if isinstance(event, Output):
                self._size += len(event.data)
            while self._size > self._limit and not self.is_followed:
                self._drop()
            self._changed.notify_all()

    def _drop(self) -> None:
        """Lose the oldest piece after the first half: the head is worth as much as the tail."""
        middle = len(self._queue) // 2
        self._queue.rotate(-middle)
        event = self._queue.popleft()
        self._queue.rotate(middle)
        if isinstance(event, Output):
            self._size -= len(event.data)
            self._lost[event.stream] = self._lost.get(event.stream, 0) + len(event.data) + event.gap


class CommandHandle(Generic[OutputT]):
    """A command that runs.

    Args:
        stream: its events, open.
        collector: what its result needs.
        callbacks: for standard output, standard error, terminal output.
        kill: ends it.
        send_stdin: writes to it.
        close_stdin: ends its input.
    """

    def __init__(
        self,
        stream: ProcessStream,
        collector: Collector,
        callbacks: Callbacks = (None, None, None),
        *,
        kill: Callable[[int], bool],
        send_stdin: Callable[[int, str | bytes, float | None], None],
        close_stdin: Callable[[int, float | None], None],
        limit: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self._pump = _Pump(stream, limit)
        self._collector = collector
        self._callbacks = callbacks
        self._kill = kill
        self._send_stdin = send_stdin
        self._close_stdin = close_stdin
        weakref.finalize(self, self._pump.abort).atexit = False

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self._pump.stream.pid

    @property
    def stdout(self) -> str:
        """Standard output that has been taken so far."""
        return self._collector.stdout

    @property
    def stderr(self) -> str:
        """Standard error that has been taken so far."""
        return self._collector.stderr

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None until its end has been taken."""
        return self._collector.exit_code

    @property
    def error(self) -> str | None:
        """What went wrong; None if nothing did, or until its end has been taken."""
        return self._collector.error

    def __iter__(self) -> Iterator[Piece]:
        """The output as it comes: (stdout, stderr, terminal), all but one of them None."""
        self._pump.is_followed = True
        while self._collector.end is None:
            for piece in self._take():
                emit(self._callbacks, piece)
                yield piece

    def wait(
        self,
        on_pty: Callable[[bytes], None] | None = None,
        on_stdout: Callable[[str], None] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> CommandResult[OutputT]:
        """Wait for its end.

        Args:
            on_pty: called with each piece of terminal output.
            on_stdout: called with each piece of standard output.
            on_stderr: called with each piece of standard error.

        Errors:
            CommandExitException: the exit code is not 0.
            TimeoutException: its time limit is over, or the sandbox is gone, by subclass.
            SandboxException: :meth:`disconnect` was called.
        """
        while self._collector.end is None:
            for piece in self._take():
                emit(self._callbacks, piece)
                emit((on_stdout, on_stderr, on_pty), piece)
        return self._collector.result()  # type: ignore[return-value]

    def _take(self) -> list[Piece]:
        event = self._pump.next()
        if isinstance(event, envd.ProcessEnd):
            return self._collector.finish(event)
        piece = self._collector.take(event)
        return [piece] if any(part is not None for part in piece) else []

    def kill(self) -> bool:
        """End it and every process that it started. Returns False if it had ended before."""
        return self._kill(self.pid)

    def disconnect(self) -> None:
        """Stop following it. It goes on running; ``commands.connect(pid)`` follows it again."""
        self._pump.abort()
        self._pump.join()

    def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to its standard input. It must have been started with ``stdin=True``."""
        self._send_stdin(self.pid, data, request_timeout)

    def close_stdin(self, request_timeout: float | None = None) -> None:
        """End its standard input."""
        self._close_stdin(self.pid, request_timeout)


class WatchHandle:
    """A directory that is watched; the sandbox collects the events until they are asked for.

    Args:
        get_events: asks for them.
        stop: ends the watch.
    """

    def __init__(
        self,
        get_events: Callable[[float | None], list[FilesystemEvent]],
        stop: Callable[[float | None], None],
    ) -> None:
        self._get_events = get_events
        self._stop = stop
        self._stopped = False

    def get_new_events(self, request_timeout: float | None = None) -> list[FilesystemEvent]:
        """The events since the last call.

        Errors:
            SandboxException: the watch was stopped, or the sandbox is gone.
        """
        if self._stopped:
            raise SandboxException("the watch was stopped")
        return self._get_events(request_timeout)

    def stop(self, request_timeout: float | None = None) -> None:
        """Stop watching."""
        if not self._stopped:
            self._stopped = True
            self._stop(request_timeout)
