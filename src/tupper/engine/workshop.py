"""A sandbox for one step of a build: it writes into a new layer on top of others.

Nothing of a build runs on the host's own kernel, and the host never writes into a tree that the
guest has written to: files come in and go out through the agent. A workshop is a sandbox like any
other (recorded before it exists, undone on failure, swept after a crash), only without a name, a
listing or a deadline of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from tupper.core import overlay
from tupper.core.backend import ImageConfig, Layer, Rootfs
from tupper.core.errors import TupperError
from tupper.core.ids import new_sandbox_id, new_token
from tupper.core.lifecycle import EndReason, ExitReason, State
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.version import VERSION
from tupper.engine.context import Context
from tupper.engine.creation import Creation, remove_tree
from tupper.engine.ending import begin_end
from tupper.engine.inside import Inside
from tupper.engine.request import decide_limits
from tupper.engine.sandbox import Sandbox

_STOP_S = 15.0


@contextlib.asynccontextmanager
async def open_workshop(
    context: Context, lowers: Sequence[Path], config: ImageConfig, keep_at: Path | None
) -> AsyncGenerator[Inside]:
    """A sandbox that writes on top of layers.

    Args:
        context: of the engine.
        lowers: the layers, the lowest first.
        config: of the image so far.
        keep_at: where the new layer goes if all went well; None throws it away.
    """
    sandbox_id = new_sandbox_id()
    place = build_directory(context) / f"tmp-{sandbox_id}"
    place.mkdir(mode=0o700, parents=True)
    try:
        sandbox = _reserve(context, sandbox_id)
        try:
            ground = Rootfs("", overlay.merged(place), config)
            layer = Layer(place, tuple(lowers))
            request = CreateRequest(timeout_s=None)
            await Creation(context, sandbox, request, ground=ground, layer=layer).run()
            yield Inside(context, sandbox)
            await _write_back(sandbox)
        finally:
            await asyncio.shield(_end(context, sandbox))
        overlay.keep_tmp(files_of(place / "layer"), undo=True)
        if keep_at is not None:
            (place / "layer").rename(keep_at)
    finally:
        await asyncio.shield(remove_tree(place))


def files_of(layer: Path) -> Path:
    """The directory that is stacked, of a layer that was kept."""
    return layer / overlay.FILES


def build_directory(context: Context) -> Path:
    """Where layers of builds are."""
    return context.paths.data / "build"


def _reserve(context: Context, sandbox_id: str) -> Sandbox:
    limits = decide_limits(CreateRequest(), context.settings)
    record = SandboxRecord(
        id=sandbox_id,
        state=State.STARTING,
        token=new_token(),
        purpose="build",
        created_at=time.time(),
        cpus=limits.cpus,
        memory_mib=max(limits.memory_mib, 2048),
        disk_mib=limits.disk_mib,
        pids=limits.pids,
        boot_id=context.boot_id,
        started_by=VERSION,
    )
    sandbox = Sandbox(record)
    context.sandboxes[sandbox_id] = sandbox
    return sandbox


async def _write_back(sandbox: Sandbox) -> None:
    """Have the guest write everything to the layer before its kernel is ended."""
    with contextlib.suppress(TupperError, OSError, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            await sandbox.agent.shutdown(grace_s=1)
            if sandbox.machine is not None:
                await sandbox.machine.wait()


async def _end(context: Context, sandbox: Sandbox) -> None:
    if sandbox.machine is not None:
        async with sandbox.lock:
            task = begin_end(context, sandbox, ExitReason(EndReason.KILLED, "the step is over"))
        await task
    context.sandboxes.pop(sandbox.id, None)
    await context.store.forget(sandbox.id)
