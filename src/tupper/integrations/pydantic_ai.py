"""Pydantic AI: a sandbox as the workspace of a run, made when the run first needs it.

``Agent(..., capabilities=[TupperWorkspace(), Shell(), ...])``. The sandbox outlives the run;
whoever holds its reference ends it by `TupperWorkspace.destroy`, or its lifetime does. Works on
asyncio. Source: ``pydantic_ai.workspaces`` 2.62 to 2.68.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from tupper import AsyncSandbox, EntryInfo, FileType
from tupper import SandboxNotFoundException as NotThere
from tupper import SandboxNotRunningException as NotRunning
from tupper.integrations import _files, _shell
from tupper.integrations._errors import becoming
from tupper.integrations._extra import missing

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.workspaces import protocol
    from pydantic_ai.workspaces.protocol import FileEntry, WorkspaceRef
except ImportError as error:
    raise missing("pydantic-ai", error) from error

PROVIDER = "tupper"
Options = Mapping[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


def _living() -> AbstractContextManager[None]:
    """Turns the end of the sandbox into the error that no retry helps against."""
    return becoming(lambda e: protocol.WorkspaceUnavailableError(str(e)), NotRunning, NotThere)


def _in_sandbox(
    work: Callable[Concatenate[AsyncSandbox, P], Awaitable[T]],
) -> Callable[Concatenate[TupperWorkspaceBackend, P], Coroutine[Any, Any, T]]:
    """A method that does this in the backend's sandbox."""

    async def call(self: TupperWorkspaceBackend, /, *args: P.args, **more: P.kwargs) -> T:
        sandbox = await self.get_sandbox()
        with _living():
            return await work(sandbox, *args, **more)

    return call


class TupperWorkspaceBackend:
    """A sandbox that is made, or attached to, by the first operation. Paths are absolute.

    Args:
        ref: of a sandbox to attach to; a new one is made if None.
        options: of ``AsyncSandbox.create``.
    """

    def __init__(self, *, ref: WorkspaceRef | None = None, options: Options | None = None) -> None:
        self.ref = _ours(ref) if ref else None
        self._options = {**_shell.LASTING, **(options or {})}
        self._sandbox: AsyncSandbox | None = None
        self._working_dir = ""
        self._lock = asyncio.Lock()

    async def get_sandbox(self) -> AsyncSandbox:
        """The sandbox, for what workspaces do not have."""
        async with self._lock:
            if self._sandbox is not None:
                return self._sandbox
            with _living():
                if self.ref is None:
                    self._sandbox = await AsyncSandbox.create(**self._options)
                    self.ref = WorkspaceRef(provider=PROVIDER, id=self._sandbox.sandbox_id)
                else:
                    self._sandbox = await AsyncSandbox.connect(self.ref.id)
                return self._sandbox

    async def working_dir(self) -> str:
        """Where commands start."""
        self._working_dir = self._working_dir or await _in_sandbox(_shell.working_dir)(self)
        return self._working_dir

    async def run(
        self,
        command: protocol.WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> protocol.CommandResult:
        """Run a program with its arguments, or text in a login shell."""
        if shell is not isinstance(command, str):
            raise TypeError("text needs shell=True, a program with its arguments shell=False")
        protocol.validate_timeout(timeout)
        done = await _in_sandbox(_shell.arun)(self, command, timeout_s=timeout, envs=env)
        texts = {"stdout": done.stdout, "stderr": done.stderr}
        if done.timed_out:
            said = f"the command reached its time limit of {timeout:g} s"
            raise protocol.WorkspaceTimeoutError(said, **texts)
        if done.dropped_bytes:
            said, limit = f"{done.dropped_bytes} bytes too much", _shell.MAX_OUTPUT_BYTES
            raise protocol.WorkspaceOutputLimitError(said, limit=limit, **texts)
        return protocol.CommandResult(exit_code=done.exit_code, **texts)

    read_bytes = _in_sandbox(_files.read)
    write_bytes = _in_sandbox(_files.write)
    make_dir = _in_sandbox(_files.make_dir)
    realpath = _in_sandbox(_files.realpath)

    async def stat(self, path: str) -> FileEntry:
        """What there is at a path; what a link leads to."""
        return _entry(await _in_sandbox(_files.stat)(self, path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """The entries of a directory."""
        return [_entry(info) for info in await _in_sandbox(_files.entries)(self, path)]

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it, but never where commands start."""
        here, above = await self.working_dir(), await self.realpath(posixpath.dirname(path))
        target = posixpath.normpath(posixpath.join(above, posixpath.basename(path)))
        if f"{here}/".startswith(f"{target.rstrip('/')}/"):
            raise ValueError(f"{path!r} is, or contains, the working directory {here!r}")
        await _in_sandbox(_files.remove)(self, path)

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return bool(await self.stat(path))
        return False


@dataclass(kw_only=True)
class TupperWorkspace(AbstractCapability[Any]):
    """Gives each run a sandbox to work in, unless it goes on in one that is there.

    Args:
        options: of ``AsyncSandbox.create``, for new ones: template, timeout, cpus and so on.
    """

    options: Options = field(default_factory=dict)

    def get_workspace(
        self, ctx: object, *, ref: WorkspaceRef | None
    ) -> TupperWorkspaceBackend | None:
        """The backend of a run; does no I/O."""
        is_ours = ref is None or ref.provider == PROVIDER
        return TupperWorkspaceBackend(ref=ref, options=self.options) if is_ours else None

    async def destroy(self, ref: WorkspaceRef) -> None:
        """End a sandbox; one that has ended is no error."""
        await AsyncSandbox.kill(_ours(ref).id)


def _ours(ref: WorkspaceRef) -> WorkspaceRef:
    if ref.provider != PROVIDER:
        raise ValueError(f"a workspace of {ref.provider!r} is none of {PROVIDER!r}")
    return ref


def _entry(info: EntryInfo) -> FileEntry:
    is_file = info.type is FileType.FILE and info.symlink_target is None
    is_dir, size = info.type is FileType.DIR, info.size if is_file else None
    return FileEntry(name=info.name, path=info.path, is_dir=is_dir, size=size)
