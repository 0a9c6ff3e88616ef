"""The public classes of the sync half whose signatures differ from the async half's. Hand-written.

Source: the public signatures of the ``e2b`` package 2.63.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tupper.protocol import envd
from tupper.sdk._handles_sync import CommandHandle, WatchHandle
from tupper.sdk._shared import errors
from tupper.sdk._shared.info import event_from_envd
from tupper.sdk._shared.types import FilesystemEvent, PtySize
from tupper.sdk._sync.agent import FILESYSTEM
from tupper.sdk._sync.commands import CommandCalls, send_input
from tupper.sdk._sync.files import FileCalls
from tupper.sdk._sync.pty import PtyCalls


def _pieces(data: Iterable[str | bytes]) -> Iterable[str | bytes]:
    # A text is an iterable of texts, too; one request for each character is never meant.
    if isinstance(data, str | bytes):
        raise errors.InvalidArgumentException(
            "stream_input takes several pieces, not one text: [data]"
        )
    return data


class Commands(CommandCalls):
    """Runs commands. ``sandbox.commands``."""

    def stream_input(
        self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = 60.0
    ) -> None:
        """Write pieces to a command's input; returns when the sandbox has taken them all.

        Errors:
            InvalidArgumentException: one text instead of pieces.
        """
        for piece in _pieces(data):
            send_input(self._agent, pid, piece, timeout or 0, pty=False)


class Pty(PtyCalls):
    """Opens terminals. ``sandbox.pty``."""

    def create(
        self,
        size: PtySize,
        user: str | None = None,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        on_data: Callable[[bytes], None] | None = None,
    ) -> CommandHandle[str]:
        """Open a terminal with a login shell in it. The handle's ``wait(on_pty=…)`` shows it.

        Args:
            size: in characters.
            user: whose shell; None for the default user.
            cwd: where.
            envs: environment of the shell.
            timeout: seconds until it is ended; 0 or None for no limit.
            request_timeout: seconds for the start.
            on_data: called with what it shows, in the thread that waits for the handle.
        """
        return self._create(size, on_data, user, cwd, envs, timeout, request_timeout)

    def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        on_data: Callable[[bytes], None] | None = None,
    ) -> CommandHandle[str]:
        """Follow a terminal that is open, from now on.

        Errors:
            NotFoundException: there is no such terminal.
        """
        return self._connect(pid, on_data, timeout, request_timeout)

    def stream_input(
        self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = 60.0
    ) -> None:
        """Type pieces into a terminal; see :meth:`Commands.stream_input`."""
        for piece in _pieces(data):
            send_input(self._agent, pid, piece, timeout or 0, pty=True)


class Filesystem(FileCalls):
    """Works with files. ``sandbox.files``."""

    def watch_dir(
        self,
        path: str,
        user: str | None = None,
        request_timeout: float | None = None,
        recursive: bool = False,
        include_entry: bool = False,
        allow_network_mounts: bool = False,
    ) -> WatchHandle:
        """Watch a directory; the handle is asked for events.

        Args:
            path: of the directory.
            user: decides what a relative path means.
            request_timeout: seconds.
            recursive: also what is below it, directories that appear later included.
            include_entry: whether events carry the file's info.
            allow_network_mounts: whether a network file system may be watched.

        Errors:
            FileNotFoundException: there is no such directory.
            InvalidArgumentException: it is none.
        """
        message = {
            "path": path,
            "recursive": recursive,
            "includeEntry": include_entry,
            "allowNetworkMounts": allow_network_mounts,
        }
        answer = self._call("CreateWatcher", message, user, request_timeout)
        with errors.honest():
            watcher = {"watcherId": envd.parse_watcher_id(answer)}
        agent = self._agent

        def get_events(request_timeout: float | None) -> list[FilesystemEvent]:
            route = FILESYSTEM + "GetWatcherEvents"
            answer = agent.unary(route, watcher, user=user, request_timeout=request_timeout)
            with errors.honest():
                found = [event_from_envd(event) for event in envd.parse_watcher_events(answer)]
            return [event for event in found if event is not None]

        def stop(request_timeout: float | None) -> None:
            route = FILESYSTEM + "RemoveWatcher"
            agent.unary(route, watcher, user=user, request_timeout=request_timeout)

        return WatchHandle(get_events, stop)
