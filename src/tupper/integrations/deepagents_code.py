"""``dcode``, the command of Deep Agents: ``dcode --sandbox tupper``.

Found by the entry point ``deepagents_code.sandbox_providers``.

Source: ``deepagents_code.integrations.sandbox_provider`` 0.1.57.
"""

from __future__ import annotations

from typing import Any

from tupper import NotFoundException, Sandbox, SandboxNotRunningException, TupperError
from tupper.integrations import _shell
from tupper.integrations._extra import missing
from tupper.integrations.deepagents import TupperSandbox

try:
    from deepagents_code.integrations import sandbox_provider as base
except ImportError as error:
    raise missing("deepagents-code", error) from error


class TupperProvider(base.SandboxProvider):
    """Makes sandboxes, or attaches to those that are there, and deletes them."""

    @property
    def metadata(self) -> base.SandboxProviderMetadata:
        """What ``dcode`` shows and checks before it makes one."""
        return base.SandboxProviderMetadata(
            name="tupper",
            working_dir="/home/user",
            install=base.SandboxInstallHint(kind="package", name="tupper[deepagents-code]"),
            supports_snapshot_name=True,
            backend_module="tupper.integrations.deepagents",
        )

    def get_or_create(
        self, *, sandbox_id: str | None = None, snapshot: str | None = None, **kwargs: Any
    ) -> TupperSandbox:
        """Attach to a sandbox, or make one of a template or a snapshot.

        Args:
            sandbox_id: attach to this one.
            snapshot: name of a template or a snapshot, for a new one.
            kwargs: of ``Sandbox.create``, for a new one.
        """
        try:
            if sandbox_id is not None:
                return TupperSandbox(sandbox=Sandbox.connect(sandbox_id))
            kwargs.setdefault("timeout", _shell.LIFETIME_S)
            return TupperSandbox(sandbox=Sandbox.create(snapshot, **kwargs))
        except (NotFoundException, SandboxNotRunningException) as error:
            raise base.SandboxNotFoundError(error.message) from error
        except TupperError as error:
            raise base.SandboxError(error.message) from error

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """End a sandbox; one that is not there is no error."""
        try:
            Sandbox.kill(sandbox_id)
        except TupperError as error:
            raise base.SandboxError(error.message) from error
