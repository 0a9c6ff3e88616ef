"""Tools that make, list, save and end sandboxes, and open their ports."""

from __future__ import annotations

import asyncio
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tupper.mcp.results import (
    PortFacts,
    SandboxEnd,
    SandboxFacts,
    SandboxList,
    SnapshotFacts,
)
from tupper.mcp.server import Call, session_of
from tupper.mcp.sessions import Session, settle
from tupper.mcp.tools_commands import Sandbox
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared.types import SandboxInfo, SandboxState


async def create_sandbox(
    ctx: Call,
    *,
    template: Annotated[
        str | None, Field(description="base, minimal, code-interpreter or one of the user's.")
    ] = None,
    image: Annotated[str | None, Field(description="An OCI image instead of a template.")] = None,
    snapshot: Annotated[str | None, Field(description="Of snapshot_sandbox, instead.")] = None,
    fork_of: Annotated[
        str | None,
        Field(description="Id of a sandbox to copy with its files, memory and processes, instead."),
    ] = None,
    internet: Annotated[
        bool | None, Field(description="Whether it may reach the internet.")
    ] = None,
    envs: dict[str, str] | None = None,
    cpus: Annotated[float | None, Field(gt=0)] = None,
    memory_mib: Annotated[int | None, Field(ge=64)] = None,
    name: Annotated[str | None, Field(description="A unique one.")] = None,
) -> SandboxFacts:
    """Make one more sandbox: new, from a snapshot, or as a fork of one that runs.

    Only needed for a second one, or one unlike the session's own, which is made by itself. The
    first of a session becomes its own. It ends with the session.
    """
    session = session_of(ctx)
    if sum(value is not None for value in (template, image, snapshot, fork_of)) > 1:
        raise ToolError("give one of template, image, snapshot and fork_of")
    if internet and session.options.internet is False:
        raise ToolError("this server was started with --no-internet: internet=true is refused")
    if fork_of is not None:
        made = await _fork(session, fork_of)
    else:
        made = await session.create(
            template=snapshot or template,
            image=image,
            allow_internet_access=internet,
            envs=envs,
            cpus=cpus,
            memory=memory_mib,
            name=name,
        )
    return await _facts_of(session, made)


async def _fork(session: Session, source: str) -> AsyncSandbox:
    place = await session.find(source)
    [made] = await session.use(place, place.fork(timeout=_DAY_S))
    if isinstance(made, Exception):
        raise made
    await session.adopt(made)
    return made


_DAY_S = 86_400.0


async def list_sandboxes(ctx: Call) -> SandboxList:
    """List the sandboxes that tools can be pointed at with `sandbox`."""
    session = session_of(ctx)
    infos = await settle(_all())
    if not session.options.every_sandbox:
        guest = session.options.sandbox
        infos = [
            info
            for info in infos
            if info.sandbox_id in session.ours or (guest and guest in (info.sandbox_id, info.name))
        ]
    notes = [] if infos else ["none yet: the first tool that needs one makes this session's own"]
    return SandboxList(sandboxes=[_facts(session, info) for info in infos], notes=notes)


async def _all() -> list[SandboxInfo]:
    return [info async for info in AsyncSandbox.list() if info.state is not SandboxState.ENDED]


async def kill_sandbox(ctx: Call, *, sandbox: Sandbox = None) -> SandboxEnd:
    """End a sandbox with all that is in it. One that has ended is no error."""
    session = session_of(ctx)
    target = sandbox or session.own
    if target is None and session.options.sandbox is None:
        raise ToolError("this session has no sandbox yet: there is nothing to end")
    _refuse_guest(session, target)
    place = await session.find(target)
    was_running = await session.kill(place)
    return SandboxEnd(sandbox=place.sandbox_id, was_running=was_running)


async def reset_sandbox(ctx: Call) -> SandboxFacts:
    """End this session's own sandbox, with all files and processes, and begin with a new one."""
    session = session_of(ctx)
    _refuse_guest(session, session.own)
    if session.own is not None:
        await session.kill(await session.find(session.own))
    return await _facts_of(session, await session.find(None))


def _refuse_guest(session: Session, target: str | None) -> None:
    """What the user named with --sandbox is not ours to end."""
    if session.options.sandbox is not None and target in (None, session.options.sandbox):
        raise ToolError(
            f"sandbox {session.options.sandbox} was there before this server and is not ended by it"
        )


async def snapshot_sandbox(
    ctx: Call,
    *,
    name: Annotated[str | None, Field(description="A name, also name:tag.")] = None,
    sandbox: Sandbox = None,
) -> SnapshotFacts:
    """Save a sandbox with its files, memory and processes; it goes on.

    create_sandbox(snapshot=...) starts others from it, any number of times. Snapshots stay until
    the user removes them.
    """
    session = session_of(ctx)
    place = await session.find(sandbox)
    saved = await session.use(place, place.create_snapshot(name))
    return SnapshotFacts(
        snapshot=saved.snapshot_id,
        sandbox=place.sandbox_id,
        names=saved.names,
        notes=[f"create_sandbox(snapshot={saved.snapshot_id!r}) starts another one from it"],
    )


async def expose_port(
    ctx: Call,
    *,
    port: Annotated[int, Field(ge=1, le=65_535, description="Inside the sandbox.")],
    sandbox: Sandbox = None,
) -> PortFacts:
    """Make a port of the sandbox reachable from this machine, and return its address.

    The server inside has to listen on 0.0.0.0 or 127.0.0.1; it may be started later.
    """
    session = session_of(ctx)
    place = await session.find(sandbox)
    address = await session.use(place, asyncio.to_thread(place.get_host, port))
    return PortFacts(sandbox=place.sandbox_id, port=port, address=address, url=f"http://{address}")


async def _facts_of(session: Session, place: AsyncSandbox) -> SandboxFacts:
    return _facts(session, await session.use(place, place.get_info()))


def _facts(session: Session, info: SandboxInfo) -> SandboxFacts:
    own = session.own or session.options.sandbox
    return SandboxFacts(
        sandbox=info.sandbox_id,
        state=info.state.value,
        template=info.image or info.template_id,
        is_default=own in (info.sandbox_id, info.name),
        ends_with_session=info.sandbox_id in session.ours,
        cpus=info.cpu_count,
        memory_mib=info.memory_mb,
        internet=info.allow_internet_access,
        isolation=info.isolation,
        name=info.name,
        started_at=info.started_at.isoformat(),
    )
