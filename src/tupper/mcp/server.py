"""The server: its tools and resources, and whose session a call belongs to."""

from __future__ import annotations

import contextlib
import mimetypes
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, GetPromptResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl, ValidationError

from tupper import __version__
from tupper.mcp.errors import explain_arguments
from tupper.mcp.pipes import are_pipes, standard_streams
from tupper.mcp.sessions import Options, Session, Sessions, settle

if TYPE_CHECKING:
    from mcp.server.connection import Connection

INSTRUCTIONS = """\
Runs commands and code in sandboxes on this machine, each with its own kernel, files and network.

Tools use this session's own sandbox, which is made when it is first needed and ends with the
session; create_sandbox makes others, which are then named with `sandbox`. A command's exit code
other than 0 is a normal result. What a result leaves out is named in its `notes`, with how to get
it. Files written in a sandbox are not on the host; nothing of the host is in a sandbox.
"""

_BINARY, _PLAIN = "application/octet-stream", "text/plain"
Call = Context[Sessions, Any]


class SandboxServer(MCPServer[Sessions]):
    """An MCP server that says which arguments it does not know."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Sessions, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; the model is told about every argument that does not fit."""
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            known = ", ".join(one.name for one in self._tool_manager.list_tools())
            raise ToolError(f"Unknown tool: {name}; there are {known}")
        fields = tool.parameters.get("properties", {})
        if unknown := [given for given in arguments if given not in fields]:
            raise ToolError(f"{name} has no argument {unknown[0]!r}; it has {', '.join(fields)}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(explain_arguments(name, error.__cause__)) from error.__cause__
            raise

    async def run_stdio_async(self) -> None:
        """Serve standard input and output, without threads where that is possible."""
        if not are_pipes():
            await super().run_stdio_async()
            return
        server = self._lowlevel_server
        async with standard_streams() as ours, stdio_server(*ours) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Sessions, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """There are no prompts; asking for one is a mistake of the client, not of the server."""
        del arguments, context
        raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}; this server has none")

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Sessions, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a file; what it is follows from its name."""
        found = await super().read_resource(uri, context)
        if isinstance(found, InputRequiredResult):
            return found
        guess = mimetypes.guess_type(str(uri))[0]
        return [
            ReadResourceContents(
                content=one.content,
                mime_type=guess or (_BINARY if isinstance(one.content, bytes) else _PLAIN),
            )
            for one in found
        ]


def build_server(options: Options) -> SandboxServer:
    """A server with all tools and resources, for any transport."""
    from tupper.mcp.resources import add_resources  # noqa: PLC0415 - they import what is above
    from tupper.mcp.tools import add_tools  # noqa: PLC0415

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[Sessions]) -> AsyncGenerator[Sessions]:
        sessions = Sessions(options)
        try:
            yield sessions
        finally:
            await settle(sessions.close())

    server = SandboxServer(
        name="tupper",
        title="tupper sandboxes",
        description="Sandboxes on this machine, each under its own kernel.",
        instructions=INSTRUCTIONS,
        version=__version__,
        lifespan=lifespan,
        log_level="WARNING",
    )
    add_tools(server, options)
    add_resources(server)
    return server


def session_of(ctx: Call) -> Session:
    """The session that a call belongs to: the process's over stdio, the client's over HTTP."""
    request = ctx.request_context
    if request.request is None:
        return request.lifespan_context.of("stdio", on_end=_with_the_process)
    key = None
    if request.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        key = (ctx.headers or {}).get("mcp-session-id")
    # The SDK keeps for a connection what is to be done at its end, and has no public way to it.
    connection: Connection = request.session._connection  # noqa: SLF001

    def on_end(callback: Callable[[], Awaitable[None]]) -> None:
        connection.exit_stack.push_async_callback(callback)

    return request.lifespan_context.of(key, on_end=on_end)


def _with_the_process(_: Callable[[], Awaitable[None]]) -> None:
    """Nothing to be done before the server's own end."""
