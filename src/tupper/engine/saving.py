"""Saving a sandbox that runs: to pause it, or to keep a snapshot while it goes on.

Around the save its agent is *held*: it closes all that leads out of the sandbox, keeps what its
commands say, and goes on when it is woken. Nothing is lost whatever happens in between: the
record says what is being done (``doing``), the machine is saved into a directory beside the place
where it shall lie, synced, and renamed; a pause is in force from the moment that the record says so
and not before. A start after a crash finishes or undoes it (:mod:`tupper.engine.mending`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tupper.core.backend import Capability, Machine, Snapshot
from tupper.core.errors import (
    Conflict,
    MachineUnreachable,
    OutOfDisk,
    SandboxNotFound,
    TupperError,
    Unsupported,
)
from tupper.core.lifecycle import State
from tupper.core.log import event, problem
from tupper.core.sandbox import SandboxRecord
from tupper.core.snapshot import Saved
from tupper.engine.context import Context
from tupper.engine.creation import etc_files, hostname_of, remove_tree, require_saved_mounts
from tupper.engine.ending import attachment_from_json, detach, release
from tupper.engine.events import Kind
from tupper.engine.record import render_saved
from tupper.engine.sandbox import OK, UNREACHABLE, Sandbox
from tupper.engine.together import unless_ended
from tupper.engine.watch import Watch

SAVED = "saved"
SAVING = "saving"
# What is known of a saved machine, in its directory.
FACTS = "tupper.json"
# A held agent goes on by itself after this long, if we are gone.
_LEASE_S = 60.0
_HOLD_S = 10.0
_BACK_S = 30.0
_ASK_S = 1.0


async def check_saves(context: Context, sandbox: Sandbox, operation: str) -> None:
    """Make sure that a sandbox's backend can save machines and restore them.

    Raises:
        Unsupported: with the reason.
    """
    backend = context.parts.backends.get(sandbox.record.backend)
    if backend is None:
        raise Unsupported(sandbox.record.backend, operation, "it is not installed")
    probe = await backend.probe()
    if not {Capability.SNAPSHOT, Capability.RESTORE} <= probe.capabilities:
        raise Unsupported(backend.name, operation, probe.details.get("snapshots", ""))
    if sandbox.record.mounts:
        require_saved_mounts(probe)


async def pause(context: Context, watch: Watch, sandbox: Sandbox, *, memory: bool) -> None:
    """Save a running sandbox and take its machine down. Call with its lock held.

    Args:
        context, watch: of the engine.
        sandbox: which.
        memory: whether it shall go on where it was, or boot from its files.

    Raises:
        Unsupported: its backend cannot.
        MachineUnreachable: its agent does not answer; the sandbox goes on.
        MachineFailed, OutOfDisk: it could not be saved; it goes on.
    """
    began = time.monotonic()
    await check_saves(context, sandbox, "pause")
    machine = _machine_of(sandbox)
    directory = context.directory(sandbox.id)
    facts = replace(saved_facts(sandbox.record), memory=memory)
    sandbox.change(doing="pause")
    await context.store.save(sandbox.record)
    is_held = False
    try:
        sandbox.abort_streams()
        await _hold(context, sandbox, memory=memory)
        is_held = True
        await machine.pause()
        snapshot = await machine.snapshot(await fresh(directory / SAVING))
        facts = await complete(facts, snapshot, directory / SAVING, durable=True)
        await remove_tree(directory / SAVED)
        (directory / SAVING).rename(directory / SAVED)
        await asyncio.to_thread(sync_directory, directory)
        await _commit_pause(context, sandbox, facts)
    except BaseException:
        await asyncio.shield(undo_pause(context, watch, sandbox, is_held=is_held))
        raise
    await take_down(context, watch, sandbox)
    context.events.publish(Kind.PAUSED, sandbox.record)
    took_s = time.monotonic() - began
    event("sandbox.paused", sandbox=sandbox.id, pause_s=took_s, bytes=facts.size_bytes)


async def _commit_pause(context: Context, sandbox: Sandbox, facts: Saved) -> None:
    running = sandbox.record
    sandbox.change(state=State.PAUSED, doing="", saved=facts, paused_at=round(time.time(), 6))
    try:
        await context.store.save(sandbox.record)
    except BaseException:
        sandbox.record = running
        raise


async def take_down(context: Context, watch: Watch, sandbox: Sandbox) -> None:
    """Remove the machine of a sandbox that is paused; idempotent. What fails is logged."""
    watch.forget(sandbox)
    await release(sandbox)
    if sandbox.client is not None:
        with contextlib.suppress(TupperError, OSError):
            await sandbox.client.close()
    sandbox.client = None
    sandbox.health = OK
    sandbox.steady.set()
    if sandbox.machine is not None:
        try:
            await sandbox.machine.stop(grace_s=0)
        except (TupperError, OSError) as error:
            problem("pause.stop_failed", sandbox=sandbox.id, message=str(error))
    sandbox.machine = None
    await detach(context, sandbox)
    with contextlib.suppress(OSError):
        context.socket(sandbox.id).unlink(missing_ok=True)
        _hidden(context.socket(sandbox.id)).unlink(missing_ok=True)
        (context.directory(sandbox.id) / "disk.img").unlink(missing_ok=True)
    sandbox.change(machine=None, agent=None, attachment=None)
    with contextlib.suppress(TupperError, OSError):
        await context.store.save(sandbox.record)  # the next start does it again if this is lost


async def undo_pause(context: Context, watch: Watch, sandbox: Sandbox, *, is_held: bool) -> None:
    """Let a sandbox go on whose pause failed. Whatever fails is logged."""
    directory = context.directory(sandbox.id)
    if sandbox.machine is not None:
        with contextlib.suppress(TupperError, OSError):
            await sandbox.machine.resume()
    await let_go(context, watch, sandbox, is_held=is_held)
    await remove_tree(directory / SAVING)
    await remove_tree(directory / SAVED)
    sandbox.change(state=State.RUNNING, doing="", saved=None, paused_at=0.0)
    with contextlib.suppress(TupperError, OSError):
        await context.store.save(sandbox.record)


async def snapshot_into(
    context: Context,
    watch: Watch,
    sandbox: Sandbox,
    directory: Path,
    *,
    durable: bool,
    memory: bool = True,
) -> Saved:
    """Save a running sandbox, which goes on. Call with its lock held.

    Args:
        context, watch: of the engine.
        sandbox: which.
        directory: where to; made anew.
        durable: whether it is synced to disk.
        memory: whether copies shall go on from there, or boot from its files.

    Raises:
        Unsupported, MachineUnreachable, MachineFailed, OutOfDisk: as for :func:`pause`.
    """
    await check_saves(context, sandbox, "snapshot")
    machine = _machine_of(sandbox)
    facts = replace(saved_facts(sandbox.record), memory=memory)
    await fresh(directory)
    sandbox.change(doing="snapshot")
    await context.store.save(sandbox.record)
    is_held = False
    try:
        try:
            await _hold(context, sandbox, memory=memory)
            is_held = True
            snapshot = await machine.snapshot(directory)
        finally:
            await asyncio.shield(let_go(context, watch, sandbox, is_held=is_held))
        facts = await complete(facts, snapshot, directory, durable=durable)
    except BaseException:
        await asyncio.shield(remove_tree(directory))
        raise
    finally:
        sandbox.change(doing="")
        with contextlib.suppress(TupperError, OSError):
            await context.store.save(sandbox.record)
    return facts


async def complete(facts: Saved, snapshot: Snapshot, directory: Path, *, durable: bool) -> Saved:
    """Put all that is known beside a saved machine, and bring it to disk if need be."""
    facts = replace(
        facts,
        version=snapshot.version,
        data=snapshot.data,
        saved_at=time.time(),
        size_bytes=tree_size(directory),
    )
    path = directory / FACTS
    path.touch(mode=0o600)
    path.write_text(render_saved(facts))
    if durable:
        await asyncio.to_thread(sync_tree, directory)
    return facts


async def _hold(context: Context, sandbox: Sandbox, *, memory: bool) -> None:
    """Hold the agent. From here on nobody reaches the sandbox until it is let go.

    Its socket is hidden first: a client that found it could wait for an answer for ever, since
    under gVisor the host's end of a closed listener lives on.
    """
    address = sandbox.record.agent
    if address is None:
        raise MachineUnreachable(f"the agent of sandbox {sandbox.id} is not known yet")
    sandbox.steady.clear()
    if address.kind == "unix":
        hidden = _hidden(Path(address.path))
        await asyncio.to_thread(Path(address.path).rename, hidden)
        address = replace(address, path=str(hidden))
    client = context.parts.agent(address, sandbox.record.token)
    try:
        async with asyncio.timeout(_HOLD_S):
            await client.hold(lease_s=_LEASE_S, stop=not memory)
    except (OSError, TimeoutError) as error:
        raise MachineUnreachable(f"the agent of sandbox {sandbox.id} does not answer") from error
    finally:
        await client.close()


async def let_go(context: Context, watch: Watch, sandbox: Sandbox, *, is_held: bool) -> None:
    """Wake a held agent and reach it again. A silent one is ``unreachable``, as ever.

    Args:
        context, watch: of the engine.
        sandbox: whose agent.
        is_held: whether it is known to be held; else it may be listening all the time.
    """
    machine = sandbox.machine
    try:
        if machine is not None:
            back = _reach_again(context, sandbox, machine, is_held=is_held)
            what = f"the return of the agent in sandbox {sandbox.id}"
            await unless_ended(machine, back, timeout_s=_BACK_S, what=what)
            sandbox.health = OK
    except (TupperError, OSError, TimeoutError) as error:
        sandbox.health = UNREACHABLE
        problem("hold.not_back", sandbox=sandbox.id, message=str(error))
    finally:
        sandbox.steady.set()
        watch.reschedule(sandbox)  # the hold made the agent forget its deadline


async def _reach_again(
    context: Context, sandbox: Sandbox, machine: Machine, *, is_held: bool
) -> None:
    """Wake the agent, and take its new socket if it has one."""
    await machine.wake()
    path = Path(machine.agent.path)
    if machine.agent.kind == "unix":
        private = context.socket(sandbox.id)
        with contextlib.suppress(OSError):
            hidden = _hidden(private)
            hidden.unlink() if is_held else hidden.rename(private)
    if machine.agent.kind == "unix" and (is_held or not await _answers(sandbox, path)):
        await context.parts.claim(path, context.socket(sandbox.id), _BACK_S)
    await sandbox.agent.health()


def _hidden(private: Path) -> Path:
    """The other name of a claimed socket, for us alone while its agent is held."""
    return private.with_suffix(".held")


async def _answers(sandbox: Sandbox, path: Path) -> bool:
    """Whether the agent answers where it did, without a new socket."""
    with contextlib.suppress(TupperError, OSError, TimeoutError):
        async with asyncio.timeout(_ASK_S):
            await sandbox.agent.health()
            return not await asyncio.to_thread(os.path.lexists, path)
    return False


def _machine_of(sandbox: Sandbox) -> Machine:
    if not sandbox.is_running or sandbox.machine is None:
        raise SandboxNotFound(f"sandbox {sandbox.id!r} is not running")
    if sandbox.record.doing:
        raise Conflict(f"sandbox {sandbox.id} is being changed ({sandbox.record.doing})")
    return sandbox.machine


def saved_facts(record: SandboxRecord) -> Saved:
    """What a restore of this sandbox will have to know, but for the backend's own facts."""
    attachment = attachment_from_json(record.attachment) if record.attachment else None
    hostname = hostname_of(record)
    return Saved(
        backend=record.backend,
        token=record.token,
        hostname=hostname,
        texts=etc_files(hostname, attachment),
        agent=record.agent_digest,
        rootfs_digest=record.rootfs_digest,
    )


def changed_texts(saved: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Which of the guest's small files say something that is not true any more."""
    return {
        path: (saved[path], text)
        for path, text in now.items()
        if path in saved and saved[path] != text
    }


async def fresh(directory: Path) -> Path:
    """An empty, private directory at a place."""
    await remove_tree(directory)
    await asyncio.to_thread(directory.mkdir, mode=0o700, parents=True)
    return directory


def tree_size(directory: Path) -> int:
    """The bytes that files in a directory of ours take on disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def sync_tree(directory: Path) -> None:
    """Bring a directory of ours to disk.

    Raises:
        OutOfDisk: there is no room.
    """
    try:
        for path in [*directory.rglob("*"), directory]:
            if path.is_dir() and not path.is_symlink():
                sync_directory(path)
            elif path.is_file() and not path.is_symlink():
                _sync(path, os.O_RDONLY)
    except OSError as error:
        raise OutOfDisk(f"the sandbox could not be written to disk: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Bring a directory's entries to disk."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
