"""OpenAI Agents SDK: a sandbox as the place where a ``SandboxAgent`` works.

``SandboxRunConfig(client=TupperSandboxClient(), options=TupperSandboxClientOptions())``. A session
keeps its sandbox until it is shut down; then the sandbox ends, or is laid on disk with all that
runs in it if ``pause_on_exit`` is set. A session that is resumed finds its sandbox, or gets a new
one with the files of its snapshot.

Source: ``agents.sandbox`` 0.24.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

from tupper import AsyncSandbox, NotFoundException, SandboxNotRunningException
from tupper.integrations import _shell
from tupper.integrations._extra import missing
from tupper.integrations._openai_agents_session import TupperSandboxSession

try:
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import (
        BaseSandboxClient,
        BaseSandboxClientOptions,
        SandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from pydantic import Field
except ImportError as error:
    raise missing("openai-agents", error) from error


class TupperSandboxClientOptions(BaseSandboxClientOptions):
    """What the sandbox of a session is.

    Args:
        template: its name; the default one if None.
        exposed_ports: that the agent's user may reach.
        pause_on_exit: lay the sandbox on disk when its session is shut down, instead of ending it.
        options: more of ``AsyncSandbox.create``, such as ``image``, ``cpus`` or ``memory``.
    """

    type: Literal["tupper"] = "tupper"
    template: str | None = None
    exposed_ports: tuple[int, ...] = ()
    pause_on_exit: bool = False
    options: dict[str, Any] = Field(default_factory=dict)


class TupperSandboxSessionState(SandboxSessionState):
    """What is needed to find a session's sandbox, or to make another.

    Args:
        sandbox_id: which one.
        options: with which it was made.
    """

    type: Literal["tupper"] = "tupper"
    sandbox_id: str
    options: TupperSandboxClientOptions


class TupperSandboxClient(BaseSandboxClient[TupperSandboxClientOptions]):
    """Makes sessions, each with a sandbox of its own."""

    backend_id = "tupper"
    supports_default_options = True

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: TupperSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Make a session with a new sandbox."""
        options = options or TupperSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        sandbox = await _make(options)
        state = TupperSandboxSessionState(
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=manifest,
            exposed_ports=options.exposed_ports,
            sandbox_id=sandbox.sandbox_id,
            options=options,
        )
        return self._wrap_session(TupperSandboxSession(state, sandbox))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the sandbox of a session; one that has ended is no error."""
        if isinstance(session.state, TupperSandboxSessionState):
            await AsyncSandbox.kill(session.state.sandbox_id)
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Go on with a session: in its sandbox, or in a new one if that is gone."""
        if not isinstance(state, TupperSandboxSessionState):
            raise TypeError(f"not a session of tupper: {type(state).__name__}")
        try:
            sandbox, is_there = await AsyncSandbox.connect(state.sandbox_id), True
        except (NotFoundException, SandboxNotRunningException):
            sandbox, is_there = await _make(state.options), False
            state.sandbox_id, state.workspace_root_ready = sandbox.sandbox_id, False
        session = TupperSandboxSession(state, sandbox)
        session._set_start_state_preserved(is_there)  # noqa: SLF001 - for providers
        return self._wrap_session(session)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """The state of a session from what was stored."""
        return self._deserialize_session_state_payload(payload, TupperSandboxSessionState)


async def _make(options: TupperSandboxClientOptions) -> AsyncSandbox:
    more: dict[str, Any] = {"timeout": _shell.LIFETIME_S, **options.options}
    return await AsyncSandbox.create(options.template, **more)
