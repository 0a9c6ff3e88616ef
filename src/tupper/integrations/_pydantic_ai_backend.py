"""The backend of the adapter for Pydantic AI: a sandbox that its first operation makes.

Source: ``pydantic_ai.workspaces.protocol`` 2.68.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tupper import AsyncSandbox
from tupper.integrations import _shell
from tupper.integrations._extra import missing
from tupper.integrations._pydantic_ai_files import WorkspaceFiles, living

try:
    from pydantic_ai import workspaces
    from pydantic_ai.workspaces.protocol import validate_timeout
except ImportError as error:
    raise missing("pydantic-ai", error) from error

PROVIDER = "tupper"


class TupperWorkspaceBackend(WorkspaceFiles):
    """A sandbox that is made, or attached to, by the first operation.

    Args:
        ref: of a sandbox to attach to; a new one is made if None.
        options: of ``AsyncSandbox.create``.
    """

    def __init__(
        self,
        *,
        ref: workspaces.WorkspaceRef | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"a workspace of {ref.provider!r} is none of {PROVIDER!r}")
        self._ref = ref
        self._options = {"timeout": _shell.LIFETIME_S, **(options or {})}
        self._sandbox: AsyncSandbox | None = None
        self._working_dir: str | None = None
        self._lock = asyncio.Lock()

    @property
    def ref(self) -> workspaces.WorkspaceRef | None:
        """Which sandbox; None until there is one."""
        return self._ref

    async def get_sandbox(self) -> AsyncSandbox:
        """The sandbox, for what workspaces do not have.

        Errors:
            WorkspaceUnavailableError: the one to attach to is gone.
        """
        async with self._lock:
            if self._sandbox is None:
                with living():
                    if self._ref is None:
                        self._sandbox = await AsyncSandbox.create(**self._options)
                        self._ref = workspaces.WorkspaceRef(
                            provider=PROVIDER, id=self._sandbox.sandbox_id
                        )
                    else:
                        self._sandbox = await AsyncSandbox.connect(self._ref.id)
            return self._sandbox

    async def working_dir(self) -> str:
        """Where commands start."""
        sandbox = await self.get_sandbox()
        if self._working_dir is None:
            with living():
                self._working_dir = await _shell.working_dir(sandbox)
        return self._working_dir

    async def run(
        self,
        command: workspaces.WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> workspaces.CommandResult:
        """Run a program with its arguments, or text in a login shell."""
        if shell is not isinstance(command, str):
            raise TypeError("text needs shell=True, a program with its arguments shell=False")
        validate_timeout(timeout)
        sandbox = await self.get_sandbox()
        with living():
            outcome = await _shell.arun(sandbox, command, timeout_s=timeout, envs=env)
        out, err = outcome.stdout, outcome.stderr
        if outcome.timed_out:
            raise workspaces.WorkspaceTimeoutError(
                f"the command reached its time limit of {timeout:g} s", stdout=out, stderr=err
            )
        if outcome.dropped_bytes:
            raise workspaces.WorkspaceOutputLimitError(
                f"the command wrote {outcome.dropped_bytes} bytes too much",
                limit=_shell.MAX_OUTPUT_BYTES,
                stdout=out,
                stderr=err,
            )
        return workspaces.CommandResult(exit_code=outcome.exit_code, stdout=out, stderr=err)
