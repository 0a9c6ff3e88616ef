"""OpenAI Agents SDK: a sandbox as the place where a ``SandboxAgent`` works.

``SandboxRunConfig(client=TupperSandboxClient(), options=TupperSandboxClientOptions())``. A session
keeps its sandbox until it is shut down; then the sandbox ends, or is laid on disk with all that
runs in it if ``pause_on_exit`` is set. A session that is resumed finds its sandbox, or gets a new
one with the files of its snapshot.

Source: ``agents.sandbox`` 0.24.
"""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any, Literal

from tupper import AsyncSandbox, NotFoundException, SandboxNotRunningException
from tupper.integrations import _files, _shell
from tupper.integrations._errors import raising
from tupper.integrations._extra import missing
from tupper.integrations._terminals import Glance, Terminals

try:
    from agents.sandbox import errors
    from agents.sandbox import session as base
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import pty_types
    from agents.sandbox.session.pty_types import PtyExecUpdate as Update
    from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
    from pydantic import Field
except ImportError as error:
    raise missing("openai-agents", error) from error

_LIMITS = ("timeout", "yield_time_s", "max_output_tokens")


class TupperSandboxClientOptions(base.BaseSandboxClientOptions):
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

    async def make(self) -> AsyncSandbox:
        """A new sandbox."""
        return await AsyncSandbox.create(self.template, **{**_shell.LASTING, **self.options})


class TupperSandboxSessionState(base.SandboxSessionState):
    """What is needed to find a session's sandbox, or to make another.

    Args:
        sandbox_id: which one.
        options: with which it was made.
    """

    type: Literal["tupper"] = "tupper"
    sandbox_id: str
    options: TupperSandboxClientOptions


class TupperSandboxSession(base.BaseSandboxSession):
    """A workspace in a sandbox.

    Args:
        state: of the session.
        sandbox: that runs.
    """

    def __init__(self, state: TupperSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state: Any = state
        self.sandbox, self.terminals = sandbox, Terminals(sandbox)

    async def exec(self, *command: Any, timeout: float | None = None, **how: Any) -> ExecResult:
        """Run a command in the workspace."""
        argv, place = await self._prepare(*command, **how)
        with raising(errors.ExecTransportError, command=argv):
            done = await _shell.arun(self.sandbox, argv, timeout_s=timeout, **place)
        if done.timed_out:
            raise errors.ExecTimeoutError(command=argv, timeout_s=timeout)
        out, err = done.stdout.encode(), done.stderr.encode()
        return ExecResult(stdout=out, stderr=err, exit_code=done.exit_code)

    async def _exec_internal(self, *command: Any, timeout: float | None = None) -> ExecResult:
        return await self.exec(*command, timeout=timeout, shell=False)

    async def _prepare(self, *command: Any, shell: Any = True, user: Any = None) -> Any:
        """A command as the SDK wants it, and where and as whom it runs."""
        root = self.state.manifest.root if self.state.workspace_root_ready else None
        envs = await self.state.manifest.environment.resolve()
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return argv, {"envs": envs, "cwd": root, "user": _name(user)}

    def supports_pty(self) -> bool:
        """It does."""
        return True

    async def pty_exec_start(self, *command: Any, tty: bool = False, **how: Any) -> Update:
        """Begin a command, and return what it wrote until it ended or the time was over."""
        limit_s, yield_s, max_tokens = (how.pop(name, None) for name in _LIMITS)
        argv, place = await self._prepare(*command, **how)
        place |= {"timeout": limit_s or 0, "has_terminal": tty}
        with raising(errors.ExecTransportError, command=argv):
            seen = self.terminals.start(argv, _wait_s(yield_s, default_s=10), **place)
            return _update(await seen, max_tokens)

    async def pty_write_stdin(self, *, session_id: int, chars: str, **how: Any) -> Update:
        """Type, or only look what has come."""
        _, yield_s, max_tokens = (how.pop(name, None) for name in _LIMITS)
        wait_s = _wait_s(yield_s, default_s=0.25, is_look=not chars)
        with raising(errors.PtySessionNotFoundError, KeyError, session_id=session_id):
            return _update(await self.terminals.type(session_id, chars, wait_s), max_tokens)

    async def pty_terminate_all(self) -> None:
        """End all that still run."""
        await self.terminals.end_all()

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """The content of a file in the workspace."""
        path = await self._validate_path_access(path)
        is_missing = raising(errors.WorkspaceReadNotFoundError, FileNotFoundError, path=path)
        with raising(errors.WorkspaceArchiveReadError, path=path), is_missing:
            return io.BytesIO(await _files.read(self.sandbox, path.as_posix(), _name(user)))

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file of the workspace, and the directories that lead to it."""
        path = await self._validate_path_access(path, for_write=True)
        with raising(errors.WorkspaceArchiveWriteError, path=path):
            await _files.write(self.sandbox, path.as_posix(), data.read(), _name(user))

    async def running(self) -> bool:
        """Whether the sandbox lives."""
        return await self.sandbox.is_running()

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive, without what the manifest brings anew."""
        root = self._workspace_root_path()
        skipped = [path.as_posix() for path in self._persist_workspace_skip_relpaths()]
        with raising(errors.WorkspaceArchiveReadError, path=root):
            return io.BytesIO(await _files.pack(self.sandbox, root.as_posix(), without=skipped))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fill the workspace from a tar archive."""
        root = self._workspace_root_path()
        with raising(errors.WorkspaceArchiveWriteError, path=root):
            await _files.unpack(self.sandbox, root.as_posix(), data.read())

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        with raising(errors.WorkspaceStartError, path=root):
            await _files.make_own_dir(self.sandbox, root.as_posix())

    async def _shutdown_backend(self) -> None:
        await (self.sandbox.pause() if self.state.options.pause_on_exit else self.sandbox.kill())

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        host, _, number = self.sandbox.get_host(port).partition(":")
        return ExposedPortEndpoint(host=host, port=int(number or 80), tls=False)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Any:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> tuple[object, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)


class TupperSandboxClient(base.BaseSandboxClient[TupperSandboxClientOptions]):
    """Makes sessions, each with a sandbox of its own."""

    backend_id = "tupper"
    supports_default_options = True

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: TupperSandboxClientOptions | None = None,
    ) -> base.SandboxSession:
        """Make a session with a new sandbox."""
        options = options or TupperSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        session_id, sandbox = uuid.uuid4(), await options.make()
        state = TupperSandboxSessionState(
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=manifest,
            exposed_ports=options.exposed_ports,
            sandbox_id=sandbox.sandbox_id,
            options=options,
        )
        return self._wrap_session(TupperSandboxSession(state, sandbox))

    async def delete(self, session: base.SandboxSession) -> base.SandboxSession:
        """End the sandbox of a session; one that has ended is no error."""
        await AsyncSandbox.kill(session.state.sandbox_id)
        return session

    async def resume(self, state: base.SandboxSessionState) -> base.SandboxSession:
        """Go on with a session: in its sandbox, or in a new one if that is gone."""
        if not isinstance(state, TupperSandboxSessionState):
            raise TypeError(f"not a session of tupper: {type(state).__name__}")
        try:
            sandbox, is_there = await AsyncSandbox.connect(state.sandbox_id), True
        except (NotFoundException, SandboxNotRunningException):
            sandbox, is_there = await state.options.make(), False
            state.sandbox_id, state.workspace_root_ready = sandbox.sandbox_id, False
        session = TupperSandboxSession(state, sandbox)
        session._set_start_state_preserved(is_there)  # noqa: SLF001 - for providers
        return self._wrap_session(session)

    def deserialize_session_state(self, payload: dict[str, object]) -> base.SandboxSessionState:
        """The state of a session from what was stored."""
        return self._deserialize_session_state_payload(payload, TupperSandboxSessionState)


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user


def _wait_s(wanted_s: float | None, *, default_s: float, is_look: bool = False) -> float:
    wait_ms = int(1000 * (default_s if wanted_s is None else wanted_s))
    resolve = pty_types.resolve_pty_write_yield_time_ms
    return float(resolve(yield_time_ms=wait_ms, input_empty=is_look) / 1000)


def _update(seen: Glance, max_tokens: int | None) -> Update:
    text, count = pty_types.truncate_text_by_tokens(seen.text, max_tokens)
    return Update(seen.number, text.encode(), seen.exit_code, count)
