"""The list of tools: names, what they say of themselves, and where they are written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp_types import ToolAnnotations

from tupper.mcp import tools_code, tools_commands, tools_copy, tools_files, tools_sandboxes
from tupper.mcp.errors import told
from tupper.mcp.server import SandboxServer
from tupper.mcp.sessions import Options

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
ENDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool: what people see, the function, what clients may assume of it."""

    title: str
    function: Callable[..., Awaitable[Any]]
    annotations: ToolAnnotations


TOOLS = (
    Entry("Run a command", tools_commands.run_command, RUNS),
    Entry("Look at a command", tools_commands.poll_command, READS),
    Entry("End a command", tools_commands.kill_command, ENDS),
    Entry("Run code", tools_code.run_code, RUNS),
    Entry("Read a file", tools_files.read_file, READS),
    Entry("Write a file", tools_files.write_file, CHANGES),
    Entry("Edit a file", tools_files.edit_file, CHANGES),
    Entry("List files", tools_files.list_files, READS),
    Entry("Search files", tools_files.search_files, READS),
    Entry("Create a sandbox", tools_sandboxes.create_sandbox, ADDS),
    Entry("List sandboxes", tools_sandboxes.list_sandboxes, READS),
    Entry("End a sandbox", tools_sandboxes.kill_sandbox, ENDS),
    Entry("Start afresh", tools_sandboxes.reset_sandbox, CHANGES),
    Entry("Save a sandbox", tools_sandboxes.snapshot_sandbox, ADDS),
    Entry("Open a port", tools_sandboxes.expose_port, ADDS),
)
COPY = Entry("Copy between host and sandbox", tools_copy.copy_files, CHANGES)


def add_tools(server: SandboxServer, options: Options) -> None:
    """Register the tools; the one that touches the host only if it may touch something."""
    for entry in (*TOOLS, COPY) if options.share else TOOLS:
        server.add_tool(
            told(entry.function),
            title=entry.title,
            description=_description(entry.function.__doc__ or ""),
            annotations=entry.annotations,
        )


def _description(text: str) -> str:
    """A docstring without its indentation and line ends."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)
