"""Configuration of MCP clients, ready to paste.

Source: the documentation of Claude Code (``.mcp.json``), Cursor (``mcp.json``), Codex CLI
(``config.toml``) and VS Code (``mcp.json``), as of November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAME = "tupper"


@dataclass(frozen=True, slots=True)
class Server:
    """How a client reaches the server: a command, or a URL.

    Args:
        command: of stdio, with its arguments.
        url: of HTTP, in place of a command.
        token_variable: the environment variable that holds the bearer token; empty for none.
    """

    command: Sequence[str] = ()
    url: str = ""
    token_variable: str = ""


def claude_code(server: Server) -> str:
    """``.mcp.json`` of a project."""
    return _json({"mcpServers": {NAME: _entry(server, "${%s}", kind="http")}})


def cursor(server: Server) -> str:
    """``mcp.json``."""
    return _json({"mcpServers": {NAME: _entry(server, "${env:%s}", kind="")}})


def vs_code(server: Server) -> str:
    """``mcp.json``, whose servers always have a type."""
    entry = _entry(server, "${env:%s}", kind="http")
    return _json({"servers": {NAME: {"type": "stdio"} | entry}})


def codex(server: Server) -> str:
    """A table of ``config.toml``. A string as ``json.dumps`` writes it is one of TOML too."""
    lines = [f"[mcp_servers.{NAME}]"]
    if server.url:
        lines.append(f"url = {json.dumps(server.url)}")
        if server.token_variable:
            lines.append(f"bearer_token_env_var = {json.dumps(server.token_variable)}")
    else:
        lines.append(f"command = {json.dumps(server.command[0])}")
        lines.append(f"args = {json.dumps(list(server.command[1:]))}")
        lines.append("tool_timeout_sec = 600")
    return "\n".join(lines)


def _entry(server: Server, variable: str, *, kind: str) -> dict[str, object]:
    if not server.url:
        return {"command": server.command[0], "args": list(server.command[1:])}
    entry: dict[str, object] = {"type": kind} if kind else {}
    entry["url"] = server.url
    if server.token_variable:
        token = variable % server.token_variable
        entry["headers"] = {"Authorization": f"Bearer {token}"}
    return entry


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2)


CLIENTS = {
    "claude-code": (claude_code, "paste it into .mcp.json of your project"),
    "cursor": (cursor, "paste it into .cursor/mcp.json of your project, or ~/.cursor/mcp.json"),
    "codex": (codex, "paste it into ~/.codex/config.toml"),
    "vscode": (vs_code, "paste it into .vscode/mcp.json of your project"),
}
