"""Starting machines: booted, begun where another one waited, or gone on from a saved one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import console, copying, guest, saving
from tupper.backends.qemu.command import DISK, ROOT
from tupper.backends.qemu.control import connected
from tupper.backends.qemu.handover import give
from tupper.backends.qemu.launch import (
    Guest,
    Image,
    Launch,
    Relay,
    Running,
    detach,
    launch,
    make_directories,
    start_relay,
    uid_of,
)
from tupper.backends.qemu.layout import CONTROL_NAME
from tupper.backends.qemu.machine import QemuMachine
from tupper.backends.qemu.options import Accel
from tupper.backends.qemu.remains import Remains
from tupper.backends.qemu.warm import Kept, Warm
from tupper.core import kernel, log
from tupper.core.backend import AgentAddress, MachinePlan, MachineRecord, Snapshot
from tupper.core.cgroup import Cgroup, Limits, find_hierarchy
from tupper.core.errors import InvalidArgument, MachineFailed, NotFound, TupperError, Unsupported
from tupper.protocol.connect import as_object

BACKEND = "qemu"
# Errors that say what the user can change, and nothing else.
_OF_THE_USER = (InvalidArgument, NotFound, Unsupported)
_WAITING = "tupper: waiting"
_UNREADABLE = "the saved machine cannot be read"
_BOOT_S = 60.0
# What QEMU itself needs on top of the guest's memory: translated code, devices, buffers.
HEADROOM_MIB = 192


@dataclass(frozen=True, slots=True)
class Start:
    """All that is known before a machine is started.

    Args:
        plan: as given.
        remains: its place on the host.
        program: QEMU.
        version: of it.
        accel: what runs instructions.
        guest: what boots.
        kernel: digest of its kernel.
        cpus: processors of the guest.
        root: image of the root filesystem.
        facts: what decides what is in a machine that waits for its settings.
        gives_back: whether it has the device by which memory goes back to the host.
    """

    plan: MachinePlan
    remains: Remains
    program: Path
    version: str
    accel: Accel
    guest: Guest
    kernel: str
    cpus: int
    root: Path
    facts: Mapping[str, object]
    gives_back: bool = True


async def boot(start: Start, warm: Warm) -> QemuMachine:
    """Boot a machine; it is saved for others before it learns whom it belongs to."""
    plan, layout = start.plan, start.remains.layout
    async with AsyncExitStack() as undo:
        undo.push_async_exit(_Undo(start))
        running = await _launch(start, copying.memory(plan.memory_mib), incoming=False)
        undo.callback(running.console.close)
        said = await console.hear(running.console, _WAITING, timeout_s=_BOOT_S)
        _keep_text(layout.older_console, said, uid_of(plan.host_name))
        source = saving.Source(layout, running.pid, plan.memory_mib, disk=plan.disk_image)
        await warm.keep(Warm.key(start.facts), source, start.facts)
        relay = Relay(plan.agent_binary, settings=guest.render_settings(plan))
        record = await _finish(start, running, relay)
        undo.pop_all()
    running.console.close()
    return QemuMachine(record)


async def thaw(start: Start, warm: Warm) -> QemuMachine | None:
    """Begin where an earlier machine of this kind waited; None if there is none that works."""
    key = Warm.key(start.facts)
    kept = await asyncio.to_thread(warm.find, key)
    if kept is None:
        return None
    try:
        return await _thaw(start, warm, kept)
    except _OF_THE_USER:
        raise
    except (TupperError, OSError) as error:
        log.problem("warm.failed", sandbox=start.plan.sandbox_id, message=str(error)[:500])
        await warm.drop(key)
        return None


async def _thaw(start: Start, warm: Warm, kept: Kept) -> QemuMachine:
    relay = Relay(start.plan.agent_binary, settings=guest.render_settings(start.plan))
    async with AsyncExitStack() as undo:
        undo.push_async_exit(_Undo(start))
        saved = await warm.open(kept)
        await kernel.in_thread(lambda: _pour_disk(saved.disk, start.plan), name="qemu-disk")
        ram = copying.memory(start.plan.memory_mib)
        fill = kernel.in_thread(lambda: copying.pour(saved.ram, ram), name="qemu-fill")
        machine = await _load(start, ram, fill, saved.state, relay)
        undo.pop_all()
    return machine


def _pour_disk(saved: copying.Opened, plan: MachinePlan) -> None:
    """Make a disk the one that a machine has mounted already. Blocks."""
    if plan.disk_image is None:
        raise MachineFailed("the machine has no disk")
    disk = copying.emptied(plan.disk_image)
    os.ftruncate(disk.descriptor, plan.disk_mib << 20)
    copying.pour(saved, disk)


async def go_on(start: Start, snapshot: Snapshot) -> QemuMachine:
    """Go on from a saved machine, whose files are checked."""
    plan = start.plan
    ram = copying.memory(plan.memory_mib)
    state = await kernel.in_thread(lambda: _unpack(snapshot, plan), name="qemu-unpack")
    relay = Relay(plan.agent_binary, news=guest.render_news(plan))
    async with AsyncExitStack() as undo:
        undo.push_async_exit(_Undo(start))
        fill = kernel.in_thread(lambda: _unpack_memory(snapshot, ram), name="qemu-fill")
        machine = await _load(start, ram, fill, state, relay)
        undo.pop_all()
    return machine


async def _launch(start: Start, ram: copying.Opened, *, incoming: bool) -> Running:
    plan, remains = start.plan, start.remains

    def work() -> Running:
        make_directories(remains.layout, uid_of(plan.host_name))
        what = Launch(
            host_name=plan.host_name,
            layout=remains.layout,
            program=start.program,
            accel=start.accel,
            guest=start.guest,
            memory_mib=plan.memory_mib,
            cpus=start.cpus,
            ram=ram.descriptor,
            images=(
                Image(ROOT, start.root, read_only=True),
                Image(DISK, plan.disk_image or Path(), read_only=False),
            ),
            attachment=plan.attachment,
            mounts=plan.mounts,
            gives_back=start.gives_back,
            incoming=incoming,
            cgroup=_make_group(plan),
        )
        return launch(what)

    return await kernel.in_thread(work, name="qemu-launch", drop=lambda late: late.console.close())


async def _load(
    start: Start,
    ram: copying.Opened,
    fill: Awaitable[None],
    state: copying.Opened,
    relay: Relay,
) -> QemuMachine:
    """Load a saved machine while its memory is filled, and let it go on.

    Args:
        start: what is known.
        ram: its memory.
        fill: fills that meanwhile.
        state: of its devices.
        relay: what leads to its agent.
    """
    filling = asyncio.ensure_future(fill)
    try:
        running = await _launch(start, ram, incoming=True)
        try:
            async with connected(start.remains.layout.base, CONTROL_NAME) as control:
                await asyncio.shield(filling)
                await saving.load(control, state.descriptor)
                record = await _finish(start, running, relay)
                await control.ask("cont")
        finally:
            running.console.close()
    finally:
        await asyncio.wait({filling})
    return QemuMachine(record)


async def _finish(start: Start, running: Running, relay: Relay) -> MachineRecord:
    """Start the relay; the machine's record."""
    plan, remains = start.plan, start.remains

    def work() -> tuple[int, int]:
        return start_relay(
            relay,
            remains.layout,
            running.console.fileno(),
            host_name=plan.host_name,
            cgroup=remains.cgroup,
        )

    relay_pid, relay_ticks = await kernel.in_thread(work, name="qemu-relay")
    return MachineRecord(
        backend=BACKEND,
        sandbox_id=plan.sandbox_id,
        pid=running.pid,
        start_ticks=running.ticks,
        agent=AgentAddress("unix", path=str(remains.layout.agent)),
        data={
            "directory": str(plan.directory),
            "host_name": plan.host_name,
            "relay_pid": relay_pid,
            "relay_ticks": relay_ticks,
            "memory_mib": plan.memory_mib,
            "disk": str(plan.disk_image or ""),
            "version": start.version,
            "saved": {
                **{
                    name: start.facts[name]
                    for name in ("accel", "processor")
                    if name in start.facts
                },
                "kernel": start.kernel,
                "memory_mib": plan.memory_mib,
                "cpus": start.cpus,
                "network": plan.attachment is not None,
                "mounts": bool(plan.mounts),
                "gives_back": start.gives_back,
            },
        },
    )


def _unpack(snapshot: Snapshot, plan: MachinePlan) -> copying.Opened:
    """Copy a saved machine's disk; its state. Blocks.

    Raises:
        MachineFailed, OutOfDisk: something is missing, damaged, or does not fit.
    """
    place, digests = snapshot.directory, _digests(snapshot)
    if plan.disk_image is None:
        raise MachineFailed("the machine has no disk")
    try:
        state = copying.opened(place / saving.STATE, digests.get(saving.STATE))
        copying.fill(place / saving.DISK, plan.disk_image, digests.get(saving.DISK))
    except OSError as error:
        raise copying.failure(error, _UNREADABLE) from error
    return state


def _unpack_memory(snapshot: Snapshot, ram: copying.Opened) -> None:
    """Copy a saved machine's memory. Blocks.

    Raises:
        MachineFailed: it is missing or damaged.
    """
    try:
        path, digest = snapshot.directory / saving.RAM, _digests(snapshot).get(saving.RAM)
        copying.opened(path, digest, ram)
    except OSError as error:
        raise copying.failure(error, _UNREADABLE) from error


def _digests(snapshot: Snapshot) -> Mapping[str, object]:
    digests = as_object(snapshot.data.get("digests"))
    if digests is None:
        raise MachineFailed("the saved machine is damaged: it has no digests")
    return digests


def _keep_text(path: Path, text: str, uid: int | None) -> None:
    """Write down what was heard before the relay is there to do it."""
    with suppress(OSError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(text)
        give(path, uid)


class _Undo:
    """Removes a machine that did not get far, and says what it said last."""

    def __init__(self, start: Start) -> None:
        self._start = start

    async def __call__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        del kind, trace
        remains = self._start.remains
        words = await asyncio.to_thread(remains.last_words)
        try:
            await asyncio.shield(self._remove())
        except (TupperError, OSError) as failed:
            log.problem("undo.failed", step="qemu", message=str(failed))
        if isinstance(error, TupperError | OSError) and not isinstance(error, _OF_THE_USER):
            text = f"{error}; {words[-2000:]}" if words else str(error)
            said = _without_host_paths(text, self._start)
            raise MachineFailed(f"qemu did not start: {said}") from error

    async def _remove(self) -> None:
        await self._start.remains.remove()
        if (attachment := self._start.plan.attachment) is not None:
            await kernel.in_thread(lambda: detach(attachment), name="qemu-detach")


def _without_host_paths(text: str, start: Start) -> str:
    """Error texts reach users who must not learn where the host keeps things."""
    plan = start.plan
    names = {
        plan.directory: "(sandbox)",
        plan.rootfs.path: "(root filesystem)",
        plan.agent_binary: "(agent)",
        start.root: "(root image)",
        start.guest.kernel: "(kernel)",
        start.guest.initramfs: "(initramfs)",
    }
    for path, name in names.items():
        text = text.replace(str(path), name)
    return text


def _make_group(plan: MachinePlan) -> Cgroup | None:
    hierarchy = find_hierarchy()
    if hierarchy is None or os.geteuid() != 0:
        return None
    limits = Limits((plan.memory_mib + HEADROOM_MIB) << 20, plan.cpus)
    return Cgroup.create(hierarchy, plan.host_name, limits)
