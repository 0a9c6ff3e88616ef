"""Inspect AI: each sample of an evaluation works in a sandbox of its own: ``sandbox="tupper"``.

The name of a template may be its configuration, ``sandbox=("tupper", "my-template")``; all else is
in `TupperConfig`. Sandboxes end with their sample, and with the process at the latest. A command
that reaches its time limit is not tried again. Source: ``inspect_ai.util`` 0.3.285.
"""

from __future__ import annotations

import errno
import posixpath
import shlex
from typing import Any, Literal, overload

from tupper import AsyncSandbox
from tupper.integrations import _files, _shell
from tupper.integrations._extra import missing

try:
    from inspect_ai import util
    from pydantic import BaseModel, ConfigDict
except ImportError as error:
    raise missing("inspect-ai", error) from error
LABEL = "inspect-ai-task"
Environments = dict[str, util.SandboxEnvironment]


class TupperConfig(BaseModel):
    """What the sandboxes of a task are.

    Args:
        template: its name; the default one if None.
        options: more of ``AsyncSandbox.create``, such as ``image``, ``user`` or ``memory``.
    """

    model_config = ConfigDict(frozen=True)
    template: str | None = None
    options: dict[str, Any] = {}

    def __hash__(self) -> int:
        """Samples that want the same are prepared together."""
        return hash(self.model_dump_json())


@util.sandboxenv(name="tupper")
class TupperSandboxEnvironment(util.SandboxEnvironment):
    """The sandbox of a sample.

    Args:
        sandbox: that runs.
        working_dir: to which paths are relative.
    """

    def __init__(self, sandbox: AsyncSandbox, working_dir: str) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.working_dir = working_dir

    @classmethod
    async def sample_init(
        cls, task_name: str, config: object, metadata: dict[str, str]
    ) -> Environments:
        """Make the sandbox of a sample."""
        if config is None or isinstance(config, str):
            config = TupperConfig(template=config)
        if not isinstance(config, TupperConfig):
            raise TypeError(f"{config!r} is neither the name of a template nor a TupperConfig")
        options = {**_shell.OURS, "metadata": {LABEL: task_name}, **config.options}
        sandbox = await AsyncSandbox.create(config.template, **options)
        home = await _shell.working_dir(sandbox)
        return {"default": cls(sandbox, home)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: object, environments: Environments, interrupted: bool
    ) -> None:
        """End the sandbox of a sample."""
        for environment in environments.values():
            await environment.as_type(cls).sandbox.kill()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002
        """End a sandbox, or all that samples have."""
        pages = AsyncSandbox.list()
        while pages.has_next:
            for info in await pages.next_items():
                if LABEL in info.metadata and id in (None, info.sandbox_id):
                    await AsyncSandbox.kill(info.sandbox_id)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """The configuration from a log."""
        return TupperConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> util.ExecResult[str]:
        """Run a program."""
        limits = util.SandboxEnvironmentLimits
        options: dict[str, Any] = {"timeout_s": timeout, "envs": env, "user": user, "stdin": input}
        options |= {"cwd": self._path(cwd or ""), "max_output_bytes": limits.MAX_EXEC_OUTPUT_SIZE}
        outcome = await _shell.arun(self.sandbox, cmd, **options)
        if outcome.timed_out:
            raise TimeoutError(f"{cmd[0]!r} reached its time limit of {timeout} s")
        if outcome.not_allowed:
            raise PermissionError(errno.EACCES, outcome.stderr, cmd[0])
        if outcome.dropped_bytes:
            raise util.OutputLimitExceededError(limits.MAX_EXEC_OUTPUT_SIZE_STR, outcome.stdout)
        code = outcome.exit_code
        return util.ExecResult(code == 0, code, outcome.stdout, outcome.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and the directories that lead to it."""
        await _files.write(self.sandbox, self._path(file), contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file; text is UTF-8, line ends stay as they are."""
        path, limits = self._path(file), util.SandboxEnvironmentLimits
        await _files.may(self.sandbox, "read", path)
        if (await self.sandbox.files.get_info(path)).size > limits.MAX_READ_FILE_SIZE:
            raise util.OutputLimitExceededError(limits.MAX_READ_FILE_SIZE_STR, None)
        data = await _files.read(self.sandbox, path)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> util.SandboxConnection:
        """How to get a shell in it."""
        as_user = ["--user", user] if user else []
        command = ["tupper", "shell", *as_user, self.sandbox.sandbox_id]
        return util.SandboxConnection(type="tupper", command=shlex.join(command))

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.working_dir, path))
