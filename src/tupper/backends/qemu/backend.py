"""The QEMU backend: a Linux kernel of its own for each sandbox."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from tupper.backends.qemu import kvm, rootimage
from tupper.backends.qemu.artifacts import Artifacts, find_artifacts, guest_of
from tupper.backends.qemu.command import processors
from tupper.backends.qemu.machine import QemuMachine
from tupper.backends.qemu.options import Accel, Options, parse_options
from tupper.backends.qemu.probing import Found, Prober
from tupper.backends.qemu.remains import remains_of
from tupper.backends.qemu.starting import BACKEND, Start, boot, go_on, thaw
from tupper.backends.qemu.warm import Warm
from tupper.core import log
from tupper.core.backend import (
    Backend,
    BackendContext,
    Capability,
    Machine,
    MachinePlan,
    MachineRecord,
    Probe,
    Snapshot,
)
from tupper.core.errors import BackendUnavailable, InvalidArgument, Unsupported

_LEAST_MEMORY_MIB = 64


class Qemu(Backend):
    """See :class:`~tupper.core.backend.Backend`."""

    name: ClassVar[str] = BACKEND

    def __init__(self, context: BackendContext) -> None:
        self._settings: Options = parse_options(context.settings, settings=True)
        self._home = context.data_dir / "backends" / self.name
        self._prober = Prober(self._home, self._settings, find_artifacts)
        self._warm = Warm(self._home / "warm")

    async def probe(self) -> Probe:
        """See the contract."""
        return (await self._prober.find()).probe

    async def start(self, plan: MachinePlan) -> Machine:
        """See the contract."""
        began = time.monotonic()
        start = await self._prepare(plan)
        machine = await thaw(start, self._warm)
        how = "thawed"
        if machine is None:
            machine, how = await boot(start, self._warm), "booted"
        _say("machine.started", start, began, how)
        return machine

    async def restore(self, snapshot: Snapshot, plan: MachinePlan) -> Machine:
        """See the contract."""
        began = time.monotonic()
        start = await self._prepare(plan, saved=snapshot)
        machine = await go_on(start, snapshot)
        _say("machine.restored", start, began, "cold" if plan.cold else "running")
        return machine

    async def adopt(self, record: MachineRecord) -> Machine:
        """See the contract."""
        return QemuMachine(record)

    async def _prepare(self, plan: MachinePlan, saved: Snapshot | None = None) -> Start:
        parse_options(plan.options)
        self._refuse(plan)
        found = await self._prober.find()
        if found.program is None or found.accel is None or found.artifacts is None:
            raise BackendUnavailable(found.probe.reason, hint=found.probe.remedy or None)
        if plan.mounts and Capability.MOUNTS not in found.probe.capabilities:
            raise Unsupported(self.name, "mounts", found.probe.details.get("mounts", ""))
        if saved is not None:
            self._match(saved, plan, found, found.artifacts)
        root = await rootimage.image(plan.rootfs, self._home)
        boots = await asyncio.to_thread(
            guest_of, found.artifacts, found.accel, self._home, plan.agent_binary
        )
        cpus = processors(plan.cpus) if saved is None else int(str(saved.data.get("cpus", 1)))
        facts = {
            "qemu": found.program.key,
            "guest": f"{found.artifacts.kernel.digest} {boots.initramfs.name}",
            "root": plan.rootfs.digest,
            **_kind(found.accel),
            "memory_mib": plan.memory_mib,
            "disk_mib": plan.disk_mib,
            "cpus": cpus,
            "network": plan.attachment is not None,
            "mounts": bool(plan.mounts),
        }
        return Start(
            plan=plan,
            remains=remains_of(plan.directory, plan.host_name),
            program=found.program.path,
            version=found.program.version,
            accel=found.accel,
            guest=boots,
            kernel=found.artifacts.kernel.digest,
            cpus=cpus,
            root=root,
            facts=facts,
            # One that was saved by an earlier version has no such device.
            gives_back=saved is None or saved.data.get("gives_back") is True,
        )

    def _refuse(self, plan: MachinePlan) -> None:
        """Say clearly what this backend cannot do."""
        if plan.memory_mib < _LEAST_MEMORY_MIB:
            raise InvalidArgument(
                f"qemu needs at least {_LEAST_MEMORY_MIB} MiB memory, not {plan.memory_mib} MiB"
            )
        if plan.disk_image is None:
            raise Unsupported(self.name, "builds", "its root filesystem is an image that is fixed")

    def _match(
        self, saved: Snapshot, plan: MachinePlan, found: Found, artifacts: Artifacts
    ) -> None:
        """Make sure that the saved machine is one that this QEMU can load.

        Raises:
            Unsupported: it is another's.
        """
        have: dict[str, object] = {
            **(_kind(found.accel) if found.accel else {}),
            "kernel": artifacts.kernel.digest,
            "memory_mib": plan.memory_mib,
            "network": plan.attachment is not None,
        }
        if plan.mounts:
            raise Unsupported(self.name, "mounts in a restored sandbox")
        if saved.version != found.probe.version:
            why = f"QEMU {saved.version} made it, and here is {found.probe.version}"
            raise Unsupported(self.name, "this snapshot", why)
        for name, value in have.items():
            if saved.data.get(name) != value:
                why = f"its {name} is {saved.data.get(name)!r}, and here it is {value!r}"
                raise Unsupported(self.name, "this snapshot", why)


def _kind(accel: Accel) -> dict[str, object]:
    """What runs instructions; with KVM a guest has seen which processor that is."""
    more = {"processor": kvm.processor()} if accel is Accel.KVM else {}
    return {"accel": str(accel), **more}


def _say(event: str, start: Start, began: float, how: str) -> None:
    log.event(
        event,
        sandbox=start.plan.sandbox_id,
        backend=BACKEND,
        accel=str(start.accel),
        how=how,
        start_s=time.monotonic() - began,
    )
