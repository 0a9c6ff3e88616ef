"""Starting new sandboxes from one that was saved: from a snapshot, or as forks of a running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tupper.core.errors import Conflict, SandboxNotFound, TupperError
from tupper.core.ids import new_snapshot_id
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.snapshot import Saved, SnapshotRecord
from tupper.engine.context import Context
from tupper.engine.creation import Creation, remove_tree
from tupper.engine.reservation import reserve
from tupper.engine.restoring import Origin, Revival, inherit
from tupper.engine.sandbox import Sandbox
from tupper.engine.saving import SAVED, snapshot_into
from tupper.engine.snapshots import origin_of
from tupper.engine.watch import Watch

MOST_FORKS = 100


class FromSnapshot(Revival):
    """The making of a sandbox from a snapshot, which cannot be removed meanwhile."""

    def __init__(
        self, context: Context, sandbox: Sandbox, request: CreateRequest, record: SnapshotRecord
    ) -> None:
        super().__init__(
            context,
            sandbox,
            request,
            origin_of(context, record),
            backend=record.saved.backend,
            rootfs_digest=record.saved.rootfs_digest,
        )
        self._record = record

    async def run(self) -> None:
        """See the base."""
        uses, name = self._context.snapshot_uses, self._record.id
        uses[name] = uses.get(name, 0) + 1
        try:
            await super().run()
        finally:
            uses[name] -= 1


def start_from(
    context: Context, sandbox: Sandbox, request: CreateRequest, record: SnapshotRecord
) -> Creation:
    """The making of a sandbox from a snapshot; its record gets what is fixed in that."""
    wanted = sandbox.record
    restricts = bool(request.allow_out or request.deny_out) or request.allow_internet is not None
    sandbox.change(
        template=record.id,
        image="",
        cpus=record.cpus if request.cpus is None else wanted.cpus,
        memory_mib=record.memory_mib,
        disk_mib=record.disk_mib,
        pids=record.pids,
        allow_internet=wanted.allow_internet if restricts else record.allow_internet,
        allow_out=wanted.allow_out if restricts else record.allow_out,
        deny_out=wanted.deny_out if restricts else record.deny_out,
    )
    return FromSnapshot(context, sandbox, request, record)


@asynccontextmanager
async def saved_for_forks(
    context: Context, watch: Watch, source: Sandbox
) -> AsyncGenerator[Origin]:
    """Save a running sandbox for as long as forks of it are started.

    The save runs while the forks' networks and disks are made.

    Raises:
        Conflict: it is paused.
        Unsupported, MachineFailed, …: it could not be saved.
    """
    place = context.snapshots / f"tmp-{new_snapshot_id()}"

    async def save() -> Saved:
        async with source.lock:
            if source.is_paused:
                raise Conflict(f"sandbox {source.id} is paused")
            if not source.is_running:
                raise SandboxNotFound(f"sandbox {source.id!r} was not found")
            return await snapshot_into(context, watch, source, place, durable=False)

    saving = asyncio.get_running_loop().create_task(save(), name=f"fork {source.id}")

    async def known() -> Saved:
        return await asyncio.shield(saving)

    try:
        yield Origin(place, known)
    finally:
        await asyncio.wait({saving})
        await remove_tree(place)
    saving.result()  # a failure concerns all of them


def fork_of(
    context: Context, source: SandboxRecord, origin: Origin, timeout_s: float | None
) -> tuple[Sandbox, Creation]:
    """A place for a fork, and its making.

    Raises:
        CapacityReached, OutOfDisk: there is no room for one more.
    """
    request = CreateRequest(
        template=source.template, image=source.image, backend=source.backend, timeout_s=timeout_s
    )
    sandbox, request = reserve(context, request)
    sandbox.record = inherit(sandbox.record, source)
    making = Revival(
        context,
        sandbox,
        request,
        origin,
        backend=source.backend,
        rootfs_digest=source.rootfs_digest,
    )
    return sandbox, making


async def outcome(task: asyncio.Future[SandboxRecord]) -> SandboxRecord | TupperError:
    """What became of one fork."""
    try:
        return await task
    except TupperError as error:
        return error
    except OSError as error:
        return TupperError(f"the fork could not be started: {error.strerror or error}")


async def forget_saved(context: Context, sandbox: Sandbox) -> None:
    """Remove the saved machine of a sandbox that runs again."""
    await remove_tree(context.directory(sandbox.id) / SAVED)
