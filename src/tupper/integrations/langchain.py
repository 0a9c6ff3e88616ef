"""LangChain: a sandbox as tools, or as where the persistent shell of an agent runs.

``create_agent(model, tools=sandbox_tools(sandbox))``, or
``ShellToolMiddleware(execution_policy=TupperExecutionPolicy(sandbox_id=sandbox.sandbox_id))``.
Whoever made the sandbox ends it. An error becomes a message that the model can act on.

Source: ``langchain_core.tools`` and ``langchain.agents.middleware`` 1.5.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tupper import FileType, Sandbox, TupperError
from tupper.integrations import _shell
from tupper.integrations._extra import missing

try:
    from langchain.agents.middleware import HostExecutionPolicy
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
except ImportError as error:
    raise missing("langchain", error) from error

MAX_CHARS = 30_000  # of a result
TIMEOUT_S = 120


def sandbox_tools(sandbox: Sandbox, *, max_chars: int = MAX_CHARS) -> list[BaseTool]:
    """Tools that work in a sandbox: a command, reading, writing and listing files.

    Args:
        sandbox: that runs.
        max_chars: of a result; of more, the middle is left out, and the result says so.
    """
    shown = functools.partial(shorten, max_chars=max_chars)

    def run_command(command: str, timeout: int = TIMEOUT_S) -> str:
        """Run a command in a login shell of the sandbox.

        The result is its output with its errors, and its exit code if that is not 0. Each command
        begins in the same directory. After ``timeout`` seconds it is ended.
        """
        outcome = _shell.run(sandbox, _shell.together(command), timeout_s=timeout)
        text = shown(outcome.stdout)
        if outcome.timed_out:
            return f"{text}\n[ended: it took more than {timeout} s]"
        return text if outcome.exit_code == 0 else f"{text}\n[exit code {outcome.exit_code}]"

    def read_file(path: str, offset: int = 0, limit: int = 2000) -> str:
        """Read lines of a text file of the sandbox: ``limit`` of them after ``offset``."""
        lines = sandbox.files.read(path).splitlines(keepends=True)
        page = "".join(lines[offset : offset + limit])
        left = len(lines) - offset - limit
        return shown(page) + (f"\n[{left} more lines, from offset {offset + limit}]" * (left > 0))

    def write_file(path: str, content: str) -> str:
        """Write a text file of the sandbox, and the directories that lead to it."""
        return f"wrote {sandbox.files.write(path, content).path}"

    def list_files(path: str = ".") -> str:
        """List a directory of the sandbox: size and path of each entry."""
        entries = sandbox.files.list(path)
        return shown(
            "\n".join(
                f"{'directory' if entry.type is FileType.DIR else entry.size:>12} {entry.path}"
                for entry in entries
            )
        )

    calls: list[Callable[..., str]] = [run_command, read_file, write_file, list_files]
    return [
        StructuredTool.from_function(_told(call), handle_tool_error=True, name=call.__name__)
        for call in calls
    ]


def shorten(text: str, *, max_chars: int) -> str:
    """The text, or its beginning and end and how to get the rest."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    left_out = len(text) - 2 * half
    note = f"[{left_out} characters left out: write them to a file and read its parts]"
    return f"{text[:half]}\n{note}\n{text[-half:]}"


def _told(call: Callable[..., str]) -> Callable[..., str]:
    """Turns the SDK's errors into those that become messages."""

    @functools.wraps(call)
    def wrapped(*args: object, **kwargs: object) -> str:
        try:
            return call(*args, **kwargs)
        except TupperError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise ToolException(f"error: {error.message}{hint}") from error

    return wrapped


@dataclass
class TupperExecutionPolicy(HostExecutionPolicy):
    """Runs the shell of ``ShellToolMiddleware`` in a sandbox, with the files of that.

    Args:
        sandbox_id: of a sandbox that runs, or its name.
        user: whose shell; the sandbox's default if None.
        workdir: where it starts; the default if None.
    """

    sandbox_id: str = ""
    user: str | None = None
    workdir: str | None = None

    def spawn(self, *, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> Any:
        """Start the shell, by a program of the host that passes on what it reads and writes."""
        options = [f"--env={name}={value}" for name, value in env.items()]
        options += [f"--user={self.user}"] if self.user else []
        options += [f"--workdir={self.workdir}"] if self.workdir else []
        tupper = [sys.executable, "-m", "tupper", "exec", "--interactive", *options]
        line = [*tupper, self.sandbox_id, "--", *command]
        return super().spawn(workspace=workspace, env=os.environ, command=line)
