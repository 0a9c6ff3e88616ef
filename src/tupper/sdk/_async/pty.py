"""Terminals in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from tupper.protocol import envd
from tupper.sdk._async.agent import PROCESS
from tupper.sdk._async.commands import SHELL, Processes, send_input
from tupper.sdk._async.process import Opening
from tupper.sdk._handles_async import AsyncCommandHandle
from tupper.sdk._shared.result import Collector
from tupper.sdk._shared.types import OutputHandler, PtySize

_ENVIRONMENT = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class PtyCalls(Processes):
    """Opens terminals. ``sandbox.pty`` is its subclass."""

    async def send_stdin(self, pid: int, data: bytes, request_timeout: float | None = None) -> None:
        """Type into a terminal."""
        await send_input(self._agent, pid, data, request_timeout, pty=True)

    async def resize(self, pid: int, size: PtySize, request_timeout: float | None = None) -> None:
        """Change a terminal's size; programs in it are told."""
        message = {
            "process": envd.render_selector(pid),
            "pty": envd.render_size(size.cols, size.rows),
        }
        await self._agent.unary(PROCESS + "Update", message, request_timeout=request_timeout)

    async def _create(
        self,
        size: PtySize,
        on_data: OutputHandler[bytes] | None,
        user: str | None,
        cwd: str | None,
        envs: Mapping[str, str] | None,
        timeout: float | None,
        request_timeout: float | None,
    ) -> AsyncCommandHandle[str]:
        message = envd.render_start(
            SHELL,
            ["-i", "-l"],
            envs={**_ENVIRONMENT, **(envs or {})},
            cwd=cwd,
            stdin=True,
            pty=(size.cols, size.rows),
        )
        opening = Opening(
            message, timeout or None, user, start_limit_s=self._agent.limit(request_timeout)
        )
        stream = await self._open(opening)
        return self._handle(stream, Collector(), (None, None, on_data), pty=True)

    async def _connect(
        self,
        pid: int,
        on_data: OutputHandler[bytes] | None,
        timeout: float | None,
        request_timeout: float | None,
    ) -> AsyncCommandHandle[str]:
        opening = Opening(
            envd.render_attach(envd.render_selector(pid)),
            timeout or None,
            is_start=False,
            start_limit_s=self._agent.limit(request_timeout),
        )
        stream = await self._open(opening)
        return self._handle(stream, Collector(), (None, None, on_data), pty=True)
