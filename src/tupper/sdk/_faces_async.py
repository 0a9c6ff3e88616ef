"""The public classes of the async half whose signatures differ from the sync half's. Hand-written.

Source: the public signatures of the ``e2b`` package 2.63.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from tupper.sdk._async.agent import Agent
from tupper.sdk._async.commands import CommandCalls, send_input
from tupper.sdk._async.files import FileCalls
from tupper.sdk._async.pty import PtyCalls
from tupper.sdk._async.watch import WatchStream
from tupper.sdk._handles_async import AsyncCommandHandle, AsyncWatchHandle
from tupper.sdk._shared.types import FilesystemEvent, OutputHandler, PtySize


class AsyncCommandInputHandle:
    """The input of a process, piece by piece.

    Args:
        send: writes a piece.
    """

    def __init__(self, send: Callable[[str | bytes], Awaitable[None]]) -> None:
        self._send = send

    async def send(self, data: str | bytes) -> None:
        """Write a piece; returns when the sandbox has taken it."""
        await self._send(data)

    async def close(self) -> None:
        """End the stream. The process's input stays open; ``close_stdin`` closes it."""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()


def _input(agent: Agent, pid: int, timeout: float | None, *, pty: bool) -> AsyncCommandInputHandle:
    async def send(data: str | bytes) -> None:
        await send_input(agent, pid, data, timeout or 0, pty=pty)

    return AsyncCommandInputHandle(send)


class AsyncCommands(CommandCalls):
    """Runs commands. ``sandbox.commands``."""

    async def stream_input(
        self, pid: int, *, timeout: float | None = 60.0
    ) -> AsyncCommandInputHandle:
        """A handle to write to a command's input, piece by piece."""
        return _input(self._agent, pid, timeout, pty=False)


class AsyncPty(PtyCalls):
    """Opens terminals. ``sandbox.pty``."""

    async def create(
        self,
        size: PtySize,
        on_data: OutputHandler[bytes],
        user: str | None = None,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> AsyncCommandHandle[str]:
        """Open a terminal with a login shell in it.

        Args:
            size: in characters.
            on_data: called with what it shows.
            user: whose shell; None for the default user.
            cwd: where.
            envs: environment of the shell.
            timeout: seconds until it is ended; 0 or None for no limit.
            request_timeout: seconds for the start.
        """
        return await self._create(size, on_data, user, cwd, envs, timeout, request_timeout)

    async def connect(
        self,
        pid: int,
        on_data: OutputHandler[bytes],
        timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> AsyncCommandHandle[str]:
        """Follow a terminal that is open, from now on.

        Errors:
            NotFoundException: there is no such terminal.
        """
        return await self._connect(pid, on_data, timeout, request_timeout)

    async def stream_input(
        self, pid: int, *, timeout: float | None = 60.0
    ) -> AsyncCommandInputHandle:
        """A handle to type into a terminal, piece by piece."""
        return _input(self._agent, pid, timeout, pty=True)


class AsyncFilesystem(FileCalls):
    """Works with files. ``sandbox.files``."""

    async def watch_dir(
        self,
        path: str,
        on_event: OutputHandler[FilesystemEvent],
        on_exit: Callable[[Exception | None], None]
        | Callable[[Exception | None], Awaitable[None]]
        | None = None,
        user: str | None = None,
        request_timeout: float | None = None,
        timeout: float | None = 60,
        recursive: bool = False,
        include_entry: bool = False,
        allow_network_mounts: bool = False,
    ) -> AsyncWatchHandle:
        """Watch a directory.

        Args:
            path: of the directory.
            on_event: called with each event.
            on_exit: called once at the end, with the error if there was one.
            user: decides what a relative path means.
            request_timeout: exists for compatibility.
            timeout: seconds to watch; 0 or None for no limit.
            recursive: also what is below it, directories that appear later included.
            include_entry: whether events carry the file's info.
            allow_network_mounts: whether a network file system may be watched.

        Errors:
            FileNotFoundException: there is no such directory.
            InvalidArgumentException: it is none.
        """
        message = watch_message(path, recursive, include_entry, allow_network_mounts)
        stream = WatchStream(self._agent, message, user, timeout or None)
        await stream.open()
        return AsyncWatchHandle(stream, on_event, on_exit)


def watch_message(
    path: str, recursive: bool, include_entry: bool, allow_network_mounts: bool
) -> dict[str, object]:
    """The request of WatchDir and CreateWatcher."""
    return {
        "path": path,
        "recursive": recursive,
        "includeEntry": include_entry,
        "allowNetworkMounts": allow_network_mounts,
    }
