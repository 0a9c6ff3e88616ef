"""Handles of commands and watches for the async half. Hand-written; twin of ``_handles_sync``.

A task reads the events as they come, so a command never waits for its caller; what the caller has
not taken is kept within the limit of the output.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic

from tupper.protocol import envd
from tupper.sdk._shared.errors import SandboxException
from tupper.sdk._shared.result import Collector, Piece
from tupper.sdk._shared.types import (
    CommandResult,
    FilesystemEvent,
    OutputHandler,
    OutputT,
)

if TYPE_CHECKING:
    from tupper.sdk._async.process import ProcessStream
    from tupper.sdk._async.watch import WatchStream

Callbacks = tuple[OutputHandler[str] | None, OutputHandler[str] | None, OutputHandler[bytes] | None]


async def emit(callbacks: Callbacks, piece: Piece) -> None:
    """Hand a piece of output to whoever wants it."""
    for callback, part in zip(callbacks, piece, strict=True):
        if callback is not None and part is not None:
            outcome = callback(part)  # type: ignore[arg-type]
            if inspect.isawaitable(outcome):
                await outcome


class AsyncCommandHandle(Generic[OutputT]):
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
        callbacks: Callbacks,
        *,
        kill: Callable[[int], Awaitable[bool]],
        send_stdin: Callable[[int, str | bytes, float | None], Awaitable[None]],
        close_stdin: Callable[[int, float | None], Awaitable[None]],
    ) -> None:
        self._stream = stream
        self._collector = collector
        self._callbacks = callbacks
        self._kill = kill
        self._send_stdin = send_stdin
        self._close_stdin = close_stdin
        self._failure: BaseException | None = None
        self._task = asyncio.create_task(self._pump(), name=f"tupper-command-{stream.pid}")

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self._stream.pid

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        return self._collector.stdout

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        return self._collector.stderr

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._collector.exit_code

    @property
    def error(self) -> str | None:
        """What went wrong; None if nothing did, or while it runs."""
        return self._collector.error

    async def wait(self) -> CommandResult[OutputT]:
        """Wait for its end.

        Errors:
            CommandExitException: the exit code is not 0.
            TimeoutException: its time limit is over, or the sandbox is gone, by subclass.
            SandboxException: :meth:`disconnect` was called.
        """
        await asyncio.shield(self._task)
        if self._failure is not None:
            raise self._failure
        return self._collector.result()  # type: ignore[return-value]

    async def kill(self) -> bool:
        """End it and every process that it started. Returns False if it had ended before."""
        return await self._kill(self.pid)

    async def disconnect(self) -> None:
        """Stop following it. It goes on running; ``commands.connect(pid)`` follows it again."""
        if not self._task.done():
            self._failure = SandboxException(f"disconnected from process {self.pid}")
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to its standard input. It must have been started with ``stdin=True``."""
        await self._send_stdin(self.pid, data, request_timeout)

    async def close_stdin(self, request_timeout: float | None = None) -> None:
        """End its standard input."""
        await self._close_stdin(self.pid, request_timeout)

    async def _pump(self) -> None:
        try:
            while True:
                event = await self._stream.next()
                if isinstance(event, envd.ProcessEnd):
                    for piece in self._collector.finish(event):
                        await emit(self._callbacks, piece)
                    return
                await emit(self._callbacks, self._collector.take(event))
        except asyncio.CancelledError:
            self._failure = self._failure or SandboxException(
                f"stopped following process {self.pid}: the event loop ended"
            )
        except Exception as error:  # noqa: BLE001 - wait() raises it in its caller
            self._failure = error
        finally:
            await self._stream.close()


class AsyncWatchHandle:
    """A directory that is watched.

    Args:
        stream: its events, open.
        on_event: called with each event.
        on_exit: called once at the end, with the error if there was one.
    """

    def __init__(
        self,
        stream: WatchStream,
        on_event: OutputHandler[FilesystemEvent],
        on_exit: Callable[[Exception | None], None]
        | Callable[[Exception | None], Awaitable[None]]
        | None = None,
    ) -> None:
        self._stream = stream
        self._on_event = on_event
        self._on_exit = on_exit
        self._task = asyncio.create_task(self._pump(), name="tupper-watch")

    async def stop(self) -> None:
        """Stop watching."""
        if not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _pump(self) -> None:
        failure: Exception | None = None
        try:
            while (event := await self._stream.next()) is not None:
                outcome = self._on_event(event)
                if inspect.isawaitable(outcome):
                    await outcome
        except asyncio.CancelledError:
            failure = None
        except Exception as error:  # noqa: BLE001 - on_exit gets it
            failure = error
        finally:
            await self._stream.close()
        if self._on_exit is not None:
            outcome = self._on_exit(failure)
            if inspect.isawaitable(outcome):
                await outcome
