"""Google ADK: a sandbox as the environment of an agent's tools, or as what runs its code.

`TupperEnvironment` is for ``EnvironmentToolset``, `TupperCodeExecutor` for the ``code_executor`` of
an agent. Each makes its sandbox when it is first needed; ``close`` ends it, and so does the end of
the process.

Source: ``google.adk.environment`` and ``google.adk.code_executors`` 2.13.
"""

from __future__ import annotations

import mimetypes
import posixpath
import secrets
import threading
from pathlib import Path
from typing import Any

from tupper import AsyncSandbox, FileType, Sandbox
from tupper.integrations import _files, _shell
from tupper.integrations._extra import missing

try:
    from google.adk.code_executors import code_execution_utils as values
    from google.adk.code_executors.base_code_executor import BaseCodeExecutor
    from google.adk.environment import BaseEnvironment, ExecutionResult
    from pydantic import Field, PrivateAttr
except ImportError as error:
    raise missing("google-adk", error) from error


class TupperEnvironment(BaseEnvironment):
    """A sandbox from ``initialize`` to ``close``.

    Args:
        template: its name; the default one if None.
        options: more of ``AsyncSandbox.create``, such as ``image``, ``envs`` or ``memory``.
    """

    def __init__(self, *, template: str | None = None, **options: Any) -> None:
        self._template = template
        self._options = {**_shell.OURS, **options}
        self._sandbox: AsyncSandbox | None = None
        self._working_dir = ""

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox."""
        if self._sandbox is None:
            raise RuntimeError("the environment has no sandbox yet: await initialize() first")
        return self._sandbox

    @property
    def working_dir(self) -> Path:
        """Where commands start."""
        self.sandbox  # noqa: B018 - raises without one
        return Path(self._working_dir)

    async def initialize(self) -> None:
        """Make the sandbox, unless it is there."""
        if self._sandbox is None:
            sandbox = await AsyncSandbox.create(self._template, **self._options)
            self._working_dir = await _shell.working_dir(sandbox)
            self._sandbox, self.is_initialized = sandbox, True

    async def close(self) -> None:
        """End the sandbox, if there is one."""
        sandbox, self._sandbox, self.is_initialized = self._sandbox, None, False
        if sandbox is not None:
            await sandbox.kill()

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        """Run a command in a login shell; a time limit that is over is a result too."""
        outcome = await _shell.arun(self.sandbox, command, timeout_s=timeout)
        return ExecutionResult(outcome.exit_code, outcome.stdout, outcome.stderr, outcome.timed_out)

    async def read_file(self, path: Path) -> bytes:
        """The content of a file."""
        return await _files.read(self.sandbox, self._absolute(path))

    async def write_file(self, path: Path, content: str | bytes) -> None:
        """Write a file, and the directories that lead to it."""
        await _files.write(self.sandbox, self._absolute(path), content)

    def _absolute(self, path: Path) -> str:
        return posixpath.normpath(posixpath.join(self._working_dir, Path(path).as_posix()))


class TupperCodeExecutor(BaseCodeExecutor):
    """Runs an agent's Python code, each piece as a program in a directory of its own.

    Files that the code makes there come back with the result.

    Args:
        template: of the sandbox; the default one if None.
        options: more of ``Sandbox.create``.
    """

    template: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    _sandbox: Sandbox | None = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def execute_code(
        self, invocation_context: object, code_execution_input: values.CodeExecutionInput
    ) -> values.CodeExecutionResult:
        """Run a piece of code."""
        sandbox, folder = self._get_sandbox(), f"/tmp/adk-{secrets.token_hex(8)}"
        given = {"main.py", *(file.name for file in code_execution_input.input_files)}
        sandbox.files.write(f"{folder}/main.py", code_execution_input.code)
        for file in code_execution_input.input_files:
            sandbox.files.write(f"{folder}/{file.name}", file.content)
        command = f"cd {folder} && exec python3 main.py"
        outcome = _shell.run(sandbox, command, timeout_s=self.timeout_seconds)
        late = f"\n[ended after {self.timeout_seconds} s]" if outcome.timed_out else ""
        return values.CodeExecutionResult(
            stdout=outcome.stdout,
            stderr=outcome.stderr + late,
            output_files=_made(sandbox, folder, given),
            exit_code=outcome.exit_code,
        )

    def close(self) -> None:
        """End the sandbox, if there is one."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.kill()

    def _get_sandbox(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                options = {**_shell.OURS, **self.options}
                self._sandbox = Sandbox.create(self.template, **options)
            return self._sandbox


def _made(sandbox: Sandbox, folder: str, given: set[str]) -> list[values.File]:
    """The files of a directory that were not given."""
    found = sandbox.files.list(folder)
    names = [info.name for info in found if info.type is FileType.FILE and info.name not in given]
    return [
        values.File(
            name=name,
            content=bytes(sandbox.files.read(f"{folder}/{name}", "bytes")),
            mime_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
        )
        for name in names
    ]
