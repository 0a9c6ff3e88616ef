"""The session of the adapter for the OpenAI Agents SDK: commands and files of a workspace."""

from __future__ import annotations

import io
import secrets
from pathlib import Path
from typing import Any

from tupper import AsyncSandbox, AuthenticationException, SandboxException
from tupper.integrations import _files, _shell
from tupper.integrations._extra import missing
from tupper.integrations._openai_agents_pty import Running, Terminals

try:
    from agents.sandbox import errors
    from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER
    from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
except ImportError as error:
    raise missing("openai-agents", error) from error

_MAKE_ROOT = 'mkdir -p -- "$1" && chown "$2" "$1"'  # for whom commands run as


class TupperSandboxSession(Terminals):
    """A workspace in a sandbox.

    Args:
        state: of the session.
        sandbox: that runs.
    """

    def __init__(self, state: Any, sandbox: AsyncSandbox) -> None:
        self.state: Any = state
        self.sandbox = sandbox
        self.running_commands: dict[int, Running] = {}

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Run a command in the workspace."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(argv, timeout, user)

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        return await self._run([str(part) for part in command], timeout, None)

    async def _run(
        self, argv: list[str], timeout_s: float | None, user: str | User | None
    ) -> ExecResult:
        place = await self.place(user)
        try:
            outcome = await _shell.arun(self.sandbox, argv, timeout_s=timeout_s, **place)
        except AuthenticationException as error:  # there is no such user
            return ExecResult(stdout=b"", stderr=error.message.encode(), exit_code=126)
        except SandboxException as error:
            raise errors.ExecTransportError(command=argv, cause=error) from error
        if outcome.timed_out:
            raise errors.ExecTimeoutError(command=argv, timeout_s=timeout_s)
        out, err = outcome.stdout.encode(), outcome.stderr.encode()
        return ExecResult(stdout=out, stderr=err, exit_code=outcome.exit_code)

    async def place(self, user: str | User | None) -> dict[str, Any]:
        """Where and as whom a command runs."""
        root = self.state.manifest.root if self.state.workspace_root_ready else None
        envs = await self.state.manifest.environment.resolve()
        return {"envs": envs, "cwd": root, "user": _name(user)}

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """The content of a file in the workspace."""
        path = await self._validate_path_access(path)
        try:
            return io.BytesIO(await _files.read(self.sandbox, path.as_posix(), _name(user)))
        except FileNotFoundError as error:
            raise errors.WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (OSError, SandboxException) as error:
            raise errors.WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file of the workspace, and the directories that lead to it."""
        path = await self._validate_path_access(path, for_write=True)
        content = data.read()
        raw = content.encode() if isinstance(content, str) else bytes(content)
        try:
            await _files.write(self.sandbox, path.as_posix(), raw, _name(user))
        except (OSError, SandboxException) as error:
            raise errors.WorkspaceArchiveWriteError(path=path, cause=error) from error

    async def running(self) -> bool:
        """Whether the sandbox lives."""
        return await self.sandbox.is_running()

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive, without what the manifest brings anew."""
        root, archive = self._workspace_root_path(), f"/tmp/{secrets.token_hex(8)}.tar"
        skipped = self._persist_workspace_skip_relpaths()
        excludes = [f"--exclude=./{path.as_posix()}" for path in sorted(skipped)]
        await self._tar(root, "-cf", archive, *excludes, ".")
        try:
            return io.BytesIO(bytes(await self.sandbox.files.read(archive, "bytes")))
        finally:
            await self.sandbox.files.remove(archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fill the workspace from a tar archive."""
        root, archive = self._workspace_root_path(), f"/tmp/{secrets.token_hex(8)}.tar"
        try:
            await self.sandbox.files.write(archive, data.read())
            await self._tar(root, "-xf", archive)
        finally:
            await self.sandbox.files.remove(archive)

    async def _tar(self, root: Path, *arguments: str) -> None:
        done = await _shell.arun(self.sandbox, ["tar", "-C", root.as_posix(), *arguments])
        if done.exit_code != 0:
            is_read = arguments[0] == "-cf"
            kind = (
                errors.WorkspaceArchiveReadError if is_read else errors.WorkspaceArchiveWriteError
            )
            raise kind(path=root, context={"stderr": done.stderr[-4096:]})

    async def _prepare_backend_workspace(self) -> None:
        owner = (await _shell.arun(self.sandbox, ["sh", "-c", "echo $(id -u):$(id -g)"])).stdout
        command = ["sh", "-c", _MAKE_ROOT, "sh", self.state.manifest.root, owner.strip()]
        made = await _shell.arun(self.sandbox, command, user="root")
        if made.exit_code != 0:
            said, root = {"stderr": made.stderr[-4096:]}, Path(self.state.manifest.root)
            raise errors.WorkspaceStartError(path=root, context=said)

    async def _shutdown_backend(self) -> None:
        if self.state.options.pause_on_exit:
            await self.sandbox.pause()
        else:
            await self.sandbox.kill()

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        host, _, number = self.sandbox.get_host(port).partition(":")
        return ExposedPortEndpoint(host=host, port=int(number or 80), tls=False)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        valid: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return valid

    def _runtime_helpers(self) -> tuple[object, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user
