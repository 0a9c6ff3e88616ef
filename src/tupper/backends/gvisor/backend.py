"""The gVisor backend: runsc as the kernel of each sandbox."""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tupper.backends.gvisor import spare
from tupper.backends.gvisor.bundle import (
    SOCKET_NAME,
    Layout,
)
from tupper.backends.gvisor.inside import Start
from tupper.backends.gvisor.launch import launch
from tupper.backends.gvisor.linux import loop_device_ahead
from tupper.backends.gvisor.machine import HEADROOM_MIB, GVisorMachine, Remains, remains_of
from tupper.backends.gvisor.options import Options, Platform, parse_options
from tupper.backends.gvisor.prepare import make_directories, prepare
from tupper.backends.gvisor.probing import Found, Prober
from tupper.backends.gvisor.saving import saved_hostname
from tupper.backends.gvisor.user import start_machine
from tupper.core import kernel, log
from tupper.core.backend import (
    AgentAddress,
    Backend,
    BackendContext,
    Capability,
    Machine,
    MachinePlan,
    MachineRecord,
    Probe,
    Snapshot,
)
from tupper.core.cgroup import Cgroup, Limits, find_hierarchy
from tupper.core.errors import (
    BackendUnavailable,
    InvalidArgument,
    MachineFailed,
    TupperError,
    Unsupported,
)
from tupper.core.liveness import start_ticks

_START_TIMEOUT_S = 30.0
_LEAST_MEMORY_MIB = 32


class GVisor(Backend):
    """See :class:`~tupper.core.backend.Backend`."""

    name: ClassVar[str] = "gvisor"

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._settings: Options = parse_options(context.settings, settings=True)
        self._prober = Prober(context.data_dir / "backends" / self.name, self._settings)

    async def probe(self) -> Probe:
        """See the contract."""
        return (await self._prober.find()).probe

    async def start(self, plan: MachinePlan) -> Machine:
        """See the contract."""
        return await self._begin(plan, None)

    async def restore(self, snapshot: Snapshot, plan: MachinePlan) -> Machine:
        """See the contract."""
        found = await self._prober.find()
        if Capability.RESTORE not in found.probe.capabilities:
            raise Unsupported(self.name, "restore", found.probe.reason)
        if snapshot.version != found.probe.version:
            raise Unsupported(
                self.name,
                "this snapshot",
                f"{snapshot.version} made it, and here is {found.probe.version}",
            )
        return await self._begin(plan, snapshot)

    async def _begin(self, plan: MachinePlan, saved: Snapshot | None) -> Machine:
        options = parse_options(plan.options)
        if plan.memory_mib < _LEAST_MEMORY_MIB:
            raise InvalidArgument(
                f"gvisor needs at least {_LEAST_MEMORY_MIB} MiB memory, not {plan.memory_mib} MiB"
            )
        found = await self._prober.find()
        if found.runsc is None or found.platform is None:
            raise BackendUnavailable(found.probe.reason, hint=found.probe.remedy or None)
        started = time.monotonic()
        platform = options.platform or found.platform
        if saved is not None:
            platform = Platform(str(saved.data["platform"]))
        if why := await self._prober.why_not(platform):
            raise BackendUnavailable(f"gvisor cannot use the platform {platform} here: {why}")
        image = None if saved is None else saved.directory
        machine = await self._start(plan, found, platform, image)
        if image is not None:
            await machine.name_guest(saved_hostname(image), plan.hostname)
        if plan.cold:
            await machine.show_boot(str(uuid.uuid4()))
        log.event(
            "machine.started" if saved is None else "machine.restored",
            sandbox=plan.sandbox_id,
            backend=self.name,
            platform=platform,
            start_s=time.monotonic() - started,
        )
        return machine

    async def _start(
        self, plan: MachinePlan, found: Found, platform: Platform, image: Path | None
    ) -> GVisorMachine:
        remains = remains_of(plan.directory, plan.host_name)

        def work() -> MachineRecord:
            runsc = found.runsc or Path()
            make_directories(remains.layout)
            if os.geteuid() != 0:
                start_machine(Start(plan, remains.layout, runsc, platform, image))
                return self._record(plan, remains, found, platform)
            with loop_device_ahead(plan.disk_image) as disk:
                self._make_group(plan)
                what = prepare(plan, remains.layout, runsc, platform, image=image)
                if remains.cgroup is None:
                    launch(what, disk)
                else:
                    with remains.cgroup.holding_thread() as inside:
                        argv = remains.cgroup.joining(what.argv, inside=inside)
                        launch(replace(what, argv=argv), disk)
            return self._record(plan, remains, found, platform)

        try:
            return GVisorMachine(await kernel.in_thread(work, name="gvisor-launch"))
        except BaseException as error:
            words = remains.last_words()
            await remains.remove()
            known = isinstance(error, TupperError | OSError | ValueError)
            if isinstance(error, InvalidArgument) or not known:
                raise
            said = _without_host_paths(words or str(error), plan)
            raise MachineFailed(f"gvisor did not start: {said}") from error

    def _make_group(self, plan: MachinePlan) -> None:
        hierarchy = find_hierarchy()
        if hierarchy is not None and os.geteuid() == 0:
            limits = Limits((plan.memory_mib + HEADROOM_MIB) << 20, plan.cpus)
            Cgroup.create(hierarchy, plan.host_name, limits)

    def _record(
        self, plan: MachinePlan, remains: Remains, found: Found, platform: Platform
    ) -> MachineRecord:
        layout = remains.layout
        sandbox, gofer = _read_pids(layout, plan.sandbox_id)
        for pid in (sandbox, gofer) if os.geteuid() == 0 else ():
            spare.spare(pid)
        ticks = start_ticks(sandbox)
        if ticks is None:
            raise MachineFailed("the machine ended at once")
        return MachineRecord(
            backend=self.name,
            sandbox_id=plan.sandbox_id,
            pid=sandbox,
            start_ticks=ticks,
            agent=AgentAddress("unix", path=str(remains.seen(layout.shared) / SOCKET_NAME)),
            data={
                "directory": str(plan.directory),
                "host_name": plan.host_name,
                "gofer_pid": gofer,
                "gofer_ticks": start_ticks(gofer) or 0,
                "memory_mib": plan.memory_mib,
                "disk_mib": plan.disk_mib,
                "disk": str(plan.disk_image or ""),
                "runsc": str(found.runsc),
                "version": found.probe.version,
                "platform": str(platform),
                # A build's machine writes into the root filesystem itself.
                "saves": platform in found.saving and plan.disk_image is not None,
            },
        )

    async def adopt(self, record: MachineRecord) -> Machine:
        """See the contract."""
        return GVisorMachine(record)


def _without_host_paths(text: str, plan: MachinePlan) -> str:
    """Error texts reach users who must not learn where the host keeps things."""
    names = {
        plan.directory: "(sandbox)",
        plan.rootfs.path: "(root filesystem)",
        plan.agent_binary: "(agent)",
        **{mount.host_path: f"(mount {mount.guest_path})" for mount in plan.mounts},
    }
    for path, name in names.items():
        text = text.replace(str(path), name)
    return text


def _read_pids(layout: Layout, sandbox_id: str) -> tuple[int, int]:
    """The pids of sandbox and gofer from runsc's state file."""
    path = layout.state / f"{sandbox_id}_sandbox:{sandbox_id}.state"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise MachineFailed("runsc's state is not a file")
        state = json.loads(path.read_bytes())
        return int(state["sandbox"]["pid"]), int(state["goferPid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MachineFailed(f"runsc's state cannot be read: {error}") from error
