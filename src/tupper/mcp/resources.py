"""Files of sandboxes as resources: ``sandbox://ID/path``; ``own`` stands for the session's own."""

from __future__ import annotations

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from tupper.core.errors import TupperError
from tupper.mcp.errors import explain
from tupper.mcp.server import Call, SandboxServer, session_of
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared import errors

RESOURCE_MAX = 8 * 1024 * 1024


async def read_resource(sandbox: str, path: str, ctx: Call) -> str | bytes:
    """A file of a sandbox: text if it is UTF-8, bytes if not."""
    try:
        session = session_of(ctx)
        place = await session.find(None if sandbox == "own" else sandbox)
        return await session.use(place, _read(place, f"/{path}"))
    except errors.NotFoundException as error:
        raise ResourceNotFoundError(explain(error)) from error
    except TupperError as error:
        raise ResourceError(explain(error)) from error


async def _read(place: AsyncSandbox, path: str) -> str | bytes:
    info = await place.files.get_info(path)
    if info.size > RESOURCE_MAX:
        raise ResourceError(
            f"{path} has {info.size} bytes, a resource {RESOURCE_MAX} at most: read_file reads on"
        )
    data = bytes(await place.files.read(path, "bytes"))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def add_resources(server: SandboxServer) -> None:
    """Register the template."""
    server.resource(
        "sandbox://{sandbox}/{+path}",
        name="sandbox-file",
        title="A file of a sandbox",
        description="`sandbox` is an id, or `own` for this session's own; `path` is absolute.",
    )(read_resource)
