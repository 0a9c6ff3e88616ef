"""Snapshots: saved machines that new sandboxes are started from, any number of times.

Each is a directory in ``data/snapshots`` and a row in the store. The directory comes first, under a
name that the next start would sweep, and goes last; so a row always has its directory.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection

from tupper.core.errors import Conflict, InvalidArgument, SnapshotNotFound, Unsupported
from tupper.core.ids import is_snapshot_id, new_snapshot_id
from tupper.core.log import event
from tupper.core.sandbox import CreateRequest
from tupper.core.snapshot import Saved, SnapshotRecord
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.restoring import Origin
from tupper.engine.sandbox import Sandbox
from tupper.engine.saving import snapshot_into, sync_directory
from tupper.engine.watch import Watch

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TAG = re.compile(r"[a-z0-9_.-]{1,63}")
DEFAULT_TAG = "default"


async def keep_snapshot(
    context: Context, watch: Watch, sandbox: Sandbox, name: str, *, memory: bool
) -> SnapshotRecord:
    """Save a running sandbox as a snapshot. Call with its lock held.

    Args:
        context, watch: of the engine.
        sandbox: which.
        name: ``name``, ``name:tag`` or empty. Taken over from an older snapshot that has it.
        memory: whether others go on from there, or boot from its files.

    Raises:
        InvalidArgument: it is no name.
        Unsupported: the sandbox has mounts, or its backend cannot.
    """
    label, tag = parse_name(name) if name else ("", DEFAULT_TAG)
    refuse_mounts(sandbox, "a snapshot")
    snapshot_id = new_snapshot_id()
    place = context.snapshots / f"tmp-{snapshot_id}"
    saved = await snapshot_into(context, watch, sandbox, place, durable=True, memory=memory)
    place.rename(context.snapshots / snapshot_id)
    await asyncio.to_thread(sync_directory, context.snapshots)
    source = sandbox.record
    record = SnapshotRecord(
        id=snapshot_id,
        saved=saved,
        name=label,
        tag=tag,
        sandbox_id=sandbox.id,
        template=source.template,
        image=source.image,
        cpus=source.cpus,
        memory_mib=source.memory_mib,
        disk_mib=source.disk_mib,
        pids=source.pids,
        allow_internet=source.allow_internet,
        allow_out=source.allow_out,
        deny_out=source.deny_out,
        created_at=round(time.time(), 6),
        owner_key=source.owner_key,
    )
    await context.store.save_snapshot(record)
    context.kept[snapshot_id] = record
    event("snapshot.made", snapshot=snapshot_id, sandbox=sandbox.id, bytes=saved.size_bytes)
    return record


def refuse_mounts(sandbox: Sandbox, what: str) -> None:
    """A copy would see the same directories and volumes, whoever starts it."""
    if sandbox.record.mounts:
        raise Unsupported("tupper", what, "of a sandbox with mounted host directories")
    if sandbox.record.volumes:
        raise Unsupported("tupper", what, "of a sandbox with volumes")


def parse_name(text: str) -> tuple[str, str]:
    """Name and tag.

    Raises:
        InvalidArgument: not of their form.
    """
    name, _, tag = text.rpartition("/")[2].partition(":")
    name, tag = name.lower(), tag.lower() or DEFAULT_TAG
    if not _NAME.fullmatch(name) or not _TAG.fullmatch(tag) or is_snapshot_id(name):
        raise InvalidArgument(
            f"{text[:80]!r} cannot be a snapshot's name",
            hint="up to 63 lower-case letters, digits, '_' and '-', perhaps with ':tag'",
        )
    return name, tag


def find_snapshot(context: Context, reference: str, owner_key: str | None) -> SnapshotRecord:
    """By id or name, each with or without a tag. Of several the newest.

    Raises:
        SnapshotNotFound: there is none.
    """
    found = list_snapshots(context, name=reference, owner_key=owner_key)
    if not found:
        raise SnapshotNotFound(f"snapshot {reference!r} was not found")
    return found[0]


def list_snapshots(
    context: Context, *, sandbox: str = "", name: str = "", owner_key: str | None = None
) -> list[SnapshotRecord]:
    """The snapshots of a sandbox, or with an id or a name, or all; the newest first.

    Args:
        context: of the engine.
        sandbox: id of the sandbox.
        name: id or name, with or without a tag.
        owner_key: only those of this API key; None for everybody's.
    """
    head, _, tag = name.rpartition("/")[2].partition(":")
    newest_first = sorted(context.kept.values(), key=lambda r: (-r.created_at, r.id))
    return [
        record
        for record in newest_first
        if sandbox in ("", record.sandbox_id)
        and owner_key in (None, record.owner_key)
        and (not name or (head in (record.id, record.name) and tag in ("", record.tag)))
    ]


async def remove_snapshot(context: Context, reference: str, owner_key: str | None) -> None:
    """Remove a snapshot. Sandboxes that were started from it do not need it.

    Raises:
        SnapshotNotFound: there is none.
        Conflict: a sandbox is being started from it.
    """
    record = find_snapshot(context, reference, owner_key)
    if context.snapshot_uses.get(record.id):
        raise Conflict(f"a sandbox is being started from snapshot {record.id}")
    await context.store.forget_snapshot(record.id)
    context.kept.pop(record.id, None)
    await remove_tree(context.snapshots / record.id)
    event("snapshot.removed", snapshot=record.id)


def origin_of(context: Context, record: SnapshotRecord) -> Origin:
    """A snapshot as what a sandbox is started from."""

    async def known() -> Saved:
        return record.saved

    return Origin(context.snapshots / record.id, known)


def request_from(request: CreateRequest, record: SnapshotRecord) -> CreateRequest:
    """The request for a sandbox that is started from a snapshot.

    Raises:
        InvalidArgument: it asks for what is fixed in a saved machine.
    """
    fixed = {
        "memory": (request.memory_mib, record.memory_mib),
        "disk": (request.disk_mib, record.disk_mib),
        "pids": (request.pids, record.pids),
        "backend": (request.backend or None, record.saved.backend),
    }
    for what, (wanted, have) in fixed.items():
        if wanted not in (None, have):
            raise InvalidArgument(f"{what} of a snapshot is fixed: {have}, not {wanted}")
    if request.mounts or request.user or request.workdir:
        raise InvalidArgument(
            "mounts, user and workdir cannot be set when starting from a snapshot"
        )
    return request


async def sweep_snapshots(context: Context, agents: Collection[str]) -> None:
    """Remove what no row leads to, and copies of agents that nothing runs. At a start only.

    Args:
        context: of the engine.
        agents: digests of agents that run in other saved machines.
    """
    records = {record.id: record for record in await context.store.snapshots()}
    context.kept = records
    if context.snapshots.is_dir():
        for entry in list(context.snapshots.iterdir()):
            if entry.name not in records:
                event("sweep.snapshot", name=entry.name)
                await remove_tree(entry)
    used = {*agents, *(record.saved.agent for record in records.values())}
    for sandbox in context.sandboxes.values():
        used.add(sandbox.record.agent_digest)
        if sandbox.record.saved is not None:
            used.add(sandbox.record.saved.agent)
    context.binaries.sweep(used)
