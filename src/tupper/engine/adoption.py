"""Taking over what an earlier background process left: the living go on, the dead are removed.

A sandbox whose creation was cut off is undone. After a reboot of the host nothing lives, whatever
the pids say. A machine that lives and does not answer is kept: silence is no death.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tupper.core.backend import AgentAddress, Machine, MachineRecord
from tupper.core.cgroup import Cgroup, find_hierarchy
from tupper.core.errors import TupperError
from tupper.core.ids import is_sandbox_id
from tupper.core.lifecycle import EndReason, ExitReason, State
from tupper.core.log import event, problem
from tupper.core.sandbox import SandboxRecord
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.ending import begin_end
from tupper.engine.mending import mend_paused, mend_running
from tupper.engine.mounts import unmount_below
from tupper.engine.ports import publish
from tupper.engine.sandbox import OK, UNREACHABLE, Sandbox
from tupper.engine.snapshots import sweep_snapshots
from tupper.engine.warm import Warm
from tupper.engine.watch import Watch

_AT_ONCE = 16
_ANSWER_S = 5.0


async def adopt_all(context: Context, watch: Watch) -> None:
    """Bring the world in line with the store."""
    records = await context.store.living()
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(record: SandboxRecord) -> None:
        async with limit:
            await _adopt(context, watch, record)

    await asyncio.gather(*(one(record) for record in records))
    await _sweep(context)


async def _adopt(context: Context, watch: Watch, record: SandboxRecord) -> None:
    sandbox = Sandbox(record)
    context.sandboxes[record.id] = sandbox
    try:
        sandbox.machine = await _machine(context, record)
        if await mend_paused(context, watch, sandbox):
            event("sandbox.adopted", sandbox=record.id, backend=record.backend, state="paused")
            return
        reason = _dead_because(context, record)
        if reason is not None:
            async with sandbox.lock:
                task = begin_end(context, sandbox, reason)
            await task
            return
    except (TupperError, OSError) as error:
        problem("adopt.failed", sandbox=record.id, message=str(error))
        if sandbox.machine is None:
            # Its backend is gone from this installation: kept, and said to be unreachable.
            sandbox.health = UNREACHABLE
            return
    if record.agent is not None:
        sandbox.client = context.parts.agent(record.agent, record.token)
    watch.begin(sandbox)
    context.spawn(mend_running(context, watch, sandbox), f"mend {record.id}")
    context.spawn(_reconnect(context, sandbox), f"reconnect {record.id}", of=sandbox)
    event("sandbox.adopted", sandbox=record.id, backend=record.backend)


def _dead_because(context: Context, record: SandboxRecord) -> ExitReason | None:
    if record.boot_id != context.boot_id:
        return ExitReason(EndReason.HOST_REBOOTED, "the host was started again")
    if record.purpose:
        return ExitReason(EndReason.START_FAILED, "the background process ended during a build")
    if record.state is State.STARTING:
        detail = "the background process ended while it was started"
        return ExitReason(EndReason.START_FAILED, detail)
    return None


async def _machine(context: Context, record: SandboxRecord) -> Machine | None:
    """The machine of a record, dead or alive; also one that was never recorded."""
    if not record.backend:
        return None
    backend = context.parts.backends.get(record.backend)
    if backend is None:
        raise TupperError(f"the backend {record.backend} of sandbox {record.id} is not installed")
    unknown = MachineRecord(
        record.backend,
        record.id,
        0,
        0,
        AgentAddress("unix"),
        # As in a plan: all that a backend needs to find what a start that was cut off has made.
        {
            "directory": str(context.directory(record.id)),
            "host_name": context.host_name(record.id),
        },
    )
    return await backend.adopt(record.machine or unknown)


async def _reconnect(context: Context, sandbox: Sandbox) -> None:
    for guest, host in sandbox.record.ports.items():
        try:
            await publish(sandbox, context.parts, guest, host)
        except (TupperError, OSError) as error:
            problem("port.lost", sandbox=sandbox.id, guest=guest, host=host, message=str(error))
    await check_health(sandbox, timeout_s=_ANSWER_S)


async def check_health(sandbox: Sandbox, *, timeout_s: float) -> str:
    """Ask the agent, remember and return the answer: ``ok`` or ``unreachable``."""
    await sandbox.steady.wait()
    if sandbox.is_paused:
        return sandbox.health
    try:
        async with asyncio.timeout(timeout_s):
            await sandbox.agent.health()
        sandbox.health = OK
    except (TupperError, OSError, TimeoutError):
        sandbox.health = UNREACHABLE
    return sandbox.health


async def _sweep(context: Context) -> None:
    """Remove everything of this engine that no living sandbox owns."""
    keep = set(context.sandboxes)
    # What a paused sandbox has is its directory.
    keep_alive = {name for name, sandbox in context.sandboxes.items() if not sandbox.is_paused}
    try:
        for name in await context.parts.network.sweep(keep_alive):
            event("sweep.network", name=name)
    except (TupperError, OSError) as error:
        problem("sweep.failed", what="network", message=str(error))
    await _sweep_groups(context, keep_alive)
    for entry in _orphans(context.paths.data / "sandboxes", keep):
        event("sweep.directory", sandbox=entry.name)
        await unmount_below(entry)
        await remove_tree(entry)
    for entry in (context.paths.data / "build").glob("tmp-*"):
        await unmount_below(entry)
        await remove_tree(entry)
    for entry in _orphans(context.paths.runtime / "s", keep_alive):
        entry.unlink(missing_ok=True)
    await sweep_snapshots(context, await Warm(context).sweep())
    await context.store.forget_ended(time.time() - 24 * 3600)


async def _sweep_groups(context: Context, keep: set[str]) -> None:
    """Control groups of machines that died before their record was saved."""
    hierarchy = find_hierarchy()
    if hierarchy is None:
        return
    names = {context.host_name(sandbox_id) for sandbox_id in keep}
    for name, group in Cgroup.find(hierarchy, context.host_name("i")).items():
        if name not in names:
            await group.kill(timeout_s=_ANSWER_S)
            group.remove()
            event("sweep.cgroup", name=name)


def _orphans(directory: Path, keep: set[str]) -> list[Path]:
    if not directory.is_dir():
        return []
    return [
        entry
        for entry in directory.iterdir()
        if is_sandbox_id(entry.name.split(".")[0]) and entry.name.split(".")[0] not in keep
    ]
