"""The tool that copies between this machine and a sandbox, in the directories that are shared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tupper.mcp.results import CopyOutcome
from tupper.mcp.server import Call, session_of
from tupper.mcp.tools_commands import Sandbox


async def copy_files(
    ctx: Call,
    *,
    direction: Annotated[
        Literal["upload", "download"], Field(description="upload: from this machine into it.")
    ],
    host_path: Annotated[str, Field(description="On this machine, in a shared directory.")],
    sandbox_path: Annotated[str, Field(min_length=1, description="In the sandbox.")],
    sandbox: Sandbox = None,
) -> CopyOutcome:
    """Copy a file or a directory between this machine and the sandbox, of any size.

    Only directories that the user shared (tupper mcp --share) can be used on this machine.
    """
    session = session_of(ctx)
    local = allowed(host_path, session.options.share, writing=direction == "download")
    place = await session.find(sandbox)
    if direction == "upload":
        work = place.files.upload(local, sandbox_path)
    else:
        work = place.files.download(sandbox_path, local)
    await session.use(place, work)
    return CopyOutcome(direction=direction, host_path=str(local), sandbox_path=sandbox_path)


def allowed(host_path: str, share: Mapping[str, bool], *, writing: bool) -> Path:
    """The real path, links followed, if it lies in a shared directory.

    Errors:
        ToolError: it does not, or it may only be read there.
    """
    first = next(iter(share))
    real = Path(os.path.realpath(Path(first) / Path(host_path).expanduser()))
    for name, may_write in share.items():
        if real.is_relative_to(os.path.realpath(name)):
            if writing and not may_write:
                raise ToolError(f"{name} is shared for reading only: the user shares it with :rw")
            return real
    places = ", ".join(
        f"{name}{'' if may_write else ' (read only)'}" for name, may_write in share.items()
    )
    raise ToolError(f"{host_path} is not in a shared directory; shared are {places}")
