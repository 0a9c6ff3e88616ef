"""Pydantic AI: a sandbox as the workspace of a run, made when the run first needs it.

``Agent(..., capabilities=[TupperWorkspace(), Shell(), ...])``. The sandbox outlives the run;
whoever holds its reference ends it by `TupperWorkspace.destroy`, or its lifetime does. Works on
asyncio.

Source: ``pydantic_ai.workspaces`` 2.62 to 2.68.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tupper import AsyncSandbox
from tupper.integrations._extra import missing
from tupper.integrations._pydantic_ai_backend import PROVIDER, TupperWorkspaceBackend

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.tools import RunContext
    from pydantic_ai.workspaces import WorkspaceRef
except ImportError as error:
    raise missing("pydantic-ai", error) from error

__all__ = ["TupperWorkspace", "TupperWorkspaceBackend"]


@dataclass(kw_only=True)
class TupperWorkspace(AbstractCapability[Any]):
    """Gives each run a sandbox to work in, unless it goes on in one that is there.

    Args:
        options: of ``AsyncSandbox.create``, for new ones: template, timeout, cpus and so on.
    """

    options: Mapping[str, Any] = field(default_factory=dict)

    def get_workspace(
        self,
        ctx: RunContext[Any],
        *,
        ref: WorkspaceRef | None,
    ) -> TupperWorkspaceBackend | None:
        """The backend of a run; does no I/O."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return TupperWorkspaceBackend(ref=ref, options=self.options)

    async def destroy(self, ref: WorkspaceRef) -> None:
        """End a sandbox; one that has ended is no error."""
        if ref.provider != PROVIDER:
            raise ValueError(f"a workspace of {ref.provider!r} is none of {PROVIDER!r}")
        await AsyncSandbox.kill(ref.id)
