"""The contract between the engine and a backend.

A *machine* is a kernel plus a way to dial the agent inside it. A backend starts machines from
finished plans, finds them again after a restart, and stops them. It never runs commands or moves
files: the agent does, so every backend behaves the same.

Lifetime: ``start`` returns when the machine runs (its agent may need some more milliseconds);
a machine outlives the process that started it. ``record`` is all that ``adopt`` needs, is JSON,
and is stored by the engine. ``stop`` may be called any number of times, on living and dead
machines, and leaves nothing of the machine behind.

Optional operations raise :class:`~tupper.core.errors.Unsupported` by default and are declared in
``Probe.capabilities``; the contract suite checks that the two agree.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from tupper.core.errors import Unsupported
from tupper.core.lifecycle import ExitReason


class Isolation(StrEnum):
    """The tiers of isolation, strongest first. A shared kernel is not among them."""

    HARDWARE_VM = "hardware-vm"
    EMULATED_VM = "emulated-vm"
    USER_KERNEL = "user-kernel"

    @property
    def strength(self) -> int:
        """3 for the strongest tier, 1 for the weakest."""
        return {"hardware-vm": 3, "emulated-vm": 2, "user-kernel": 1}[self.value]


class Capability(StrEnum):
    """Operations that a backend may have. ``save_mounts``: a sandbox with mounts can be paused."""

    PAUSE = "pause"
    SNAPSHOT = "snapshot"
    RESTORE = "restore"
    MOUNTS = "mounts"
    SAVE_MOUNTS = "save_mounts"
    DISK_LIMIT = "disk_limit"
    MEMORY_LIMIT = "memory_limit"
    CPU_LIMIT = "cpu_limit"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a backend found out about this host by running something.

    Args:
        backend: its name.
        usable: whether a machine could be started now.
        reason: why not (or a remark when usable).
        remedy: what the user can do; empty if nothing.
        isolation: the tier; None when not usable.
        mechanism: for people, such as "gVisor systrap".
        kernel: what the guest's ``uname`` will say, or close to it.
        version: of the program.
        capabilities: operations that work here.
        details: more facts for ``doctor --json``.
    """

    backend: str
    usable: bool
    reason: str = ""
    remedy: str = ""
    isolation: Isolation | None = None
    mechanism: str = ""
    kernel: str = ""
    version: str = ""
    capabilities: frozenset[Capability] = frozenset()
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where the agent of a machine listens.

    Args:
        kind: ``unix`` (``path``), ``tcp`` (``host`` and ``port``) or ``vsock`` (a unix socket at
            ``path`` that wants ``CONNECT port`` first).
    """

    kind: str
    path: str = ""
    host: str = ""
    port: int = 0

    def as_json(self) -> dict[str, object]:
        """A JSON-able form, without what is empty."""
        out: dict[str, object] = {"kind": self.kind}
        if self.path:
            out["path"] = self.path
        if self.host:
            out["host"] = self.host
        if self.port:
            out["port"] = self.port
        return out


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says about the processes that run in it.

    Args:
        env: its ENV.
        workdir: its WORKDIR; empty if none.
        user: its USER as written (``name``, ``uid``, ``name:group``, ``uid:gid``); empty if none.
        entrypoint: its ENTRYPOINT.
        cmd: its CMD.
        labels: its LABELs.
        exposed_ports: TCP ports that it EXPOSEs.
        start: a template's start command, for a login shell; empty if none.
        ready: succeeds once the start command has got far enough; empty if none.
        cpus, memory_mib: what a template's sandboxes get if nobody says; 0 if it does not say.
    """

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    exposed_ports: tuple[int, ...] = ()
    start: str = ""
    ready: str = ""
    cpus: float = 0.0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Rootfs:
    """One immutable root filesystem in the store.

    Args:
        digest: ``sha256:…`` of what it was made from; its key in the store.
        path: the unpacked directory. Never written to, except by a build (see ``MachinePlan``).
        config: what the image says about processes.
        size_bytes: what it takes on disk.
    """

    digest: str
    path: Path
    config: ImageConfig
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A host directory that a sandbox sees.

    Args:
        host_path: absolute, exists, a directory.
        guest_path: absolute.
        read_only: whether the guest may not write.
    """

    host_path: Path
    guest_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """A network that exists and waits for one machine.

    Args:
        netns: the name of the network namespace (below ``/run/netns``); empty for none.
        holder_pid: the process whose user, mount and network namespaces to enter instead, where
            the engine is an ordinary user; 0 for none.
        interface: the device inside the namespace.
        address: guest address with prefix length, such as ``10.231.4.2/30``.
        gateway: the host's end.
        dns: name servers for the guest's ``resolv.conf``.
        mtu: of the device, bytes.
        data: what ``network`` needs to take it down; JSON.
    """

    netns: str = ""
    holder_pid: int = 0
    interface: str = ""
    address: str = ""
    gateway: str = ""
    dns: tuple[str, ...] = ()
    mtu: int = 1500
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Layer:
    """What a build's machine writes to: a new directory on top of others, instead of a disk.

    The backend stacks them (:func:`tupper.core.overlay.stack`) in the machine's own namespaces.

    Args:
        place: a directory of ours that is empty.
        below: directories, the lowest first.
    """

    place: Path
    below: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """All that a backend needs to start a machine; finished and frozen.

    Args:
        sandbox_id: ``i`` and 20 lower-case letters or digits.
        host_name: a prefix-safe name for host-wide things (cgroup, …): engine id and sandbox id.
        directory: the sandbox's own directory on the host, 0700, exists; the backend may put
            files of its own below ``directory / "machine"``.
        rootfs: the lower directory.
        disk_image: a sparse file of ``disk_mib`` holding an ext4 filesystem for all that the
            guest writes; None means that the guest writes straight into ``rootfs.path`` (template
            builds only).
        disk_mib: size of the writable layer.
        attachment: the network; None for a machine without any.
        mounts: host directories.
        cpus: cores, may be fractional.
        memory_mib: the machine's limit.
        pids: the most processes inside.
        hostname: of the guest.
        agent_binary: the agent on the host.
        agent_config: the agent's configuration without ``listen``, which is the backend's.
        etc_files: guest path → text of small files that the host writes at start
            (``/etc/hosts``, ``/etc/resolv.conf``, ``/etc/hostname``).
        options: ``backend_options`` of the user, checked by the backend.
        cold: for a restore: what ran in the saved machine is ended before it goes on, and the guest
            is told that it has booted.
        layer: for a build: what the backend stacks so that it is seen at ``rootfs.path``.
    """

    sandbox_id: str
    host_name: str
    directory: Path
    rootfs: Rootfs
    disk_image: Path | None
    disk_mib: int
    attachment: Attachment | None
    mounts: tuple[Mount, ...]
    cpus: float
    memory_mib: int
    pids: int
    hostname: str
    agent_binary: Path
    agent_config: Mapping[str, object]
    etc_files: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    cold: bool = False
    layer: Layer | None = None


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """What ``adopt`` needs to find a machine again. JSON-able.

    Args:
        backend: which backend.
        sandbox_id: whose machine.
        pid: of the process whose end is the machine's end.
        start_ticks: field 22 of ``/proc/PID/stat``, so that a reused pid is not taken for it.
        agent: where the agent listens.
        data: the backend's own facts.
    """

    backend: str
    sandbox_id: str
    pid: int
    start_ticks: int
    agent: AgentAddress
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved machine.

    Args:
        directory: where its files are.
        backend: who made it.
        version: of the program that made it; another version may refuse it.
        data: the backend's own facts.
    """

    directory: Path
    backend: str
    version: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Usage:
    """What a machine uses now, seen from the host.

    Args:
        cpu_s: seconds of CPU since its start.
        memory_bytes: charged to it.
        disk_bytes: blocks of its writable layer.
    """

    cpu_s: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0


class Machine(abc.ABC):
    """A kernel that runs, and a way to its agent."""

    record: MachineRecord

    @property
    def agent(self) -> AgentAddress:
        """Where the agent listens."""
        return self.record.agent

    @abc.abstractmethod
    async def wait(self) -> ExitReason:
        """Return when the machine has ended, by whatever cause. May be called by several tasks."""

    @abc.abstractmethod
    async def stop(self, *, grace_s: float) -> None:
        """End the machine and remove everything of it from the host. Idempotent.

        Args:
            grace_s: how long processes inside may take after SIGTERM; 0 for none.
        """

    def agent_answered(self) -> None:  # noqa: B027 - most have nothing to do
        """Hear that the agent has answered, while it is still alone inside. Must not block."""

    async def usage(self) -> Usage:
        """What the machine uses now."""
        return Usage()

    async def pause(self) -> None:
        """Stop the machine's clocks; memory stays."""
        raise Unsupported(self.record.backend, "pause")

    async def resume(self) -> None:
        """Continue after ``pause``."""
        raise Unsupported(self.record.backend, "resume")

    async def snapshot(self, into: Path) -> Snapshot:
        """Save memory and disk into a directory that exists and is empty.

        The machine goes on as it was, running or paused, also when this fails. Its agent must be
        held before and woken after. Nothing is synced to disk yet.

        Raises:
            MachineFailed: it could not be saved; what is in the directory is useless.
        """
        del into
        raise Unsupported(self.record.backend, "snapshot")

    async def wake(self) -> None:  # noqa: B027 - nothing to do where agents need not close
        """Tell a held agent, which listens nowhere, that it may go on. Idempotent."""


class Backend(abc.ABC):
    """A way to start machines. A class with a constructor that takes a :class:`BackendContext`."""

    name: ClassVar[str]

    @abc.abstractmethod
    async def probe(self) -> Probe:
        """Find out, by running something, whether this host can start a machine.

        Never raises for a host that cannot; says so in the result. Remembers its answer by the
        hash of the program it used.
        """

    @abc.abstractmethod
    async def start(self, plan: MachinePlan) -> Machine:
        """Start a machine. On failure nothing is left.

        Raises:
            MachineFailed: with the machine's last words.
            InvalidArgument: for an option that it does not know.
        """

    async def restore(self, snapshot: Snapshot, plan: MachinePlan) -> Machine:
        """Start a machine from a saved one; its agent is woken. On failure nothing is left.

        Args:
            snapshot: of a machine of this backend; may be restored any number of times. It is not
                needed any more when this returns.
            plan: as for the start of the saved machine, but for names, network, disk image and
                processors; the agent is the one that ran in it, and has the token of then.

        Raises:
            Unsupported: another version of the program made it.
            MachineFailed: with the machine's last words.
        """
        del snapshot, plan
        raise Unsupported(self.name, "restore")

    @abc.abstractmethod
    async def adopt(self, record: MachineRecord) -> Machine:
        """Take over a machine that an earlier process started.

        The machine may be dead: then ``wait`` returns at once and ``stop`` removes what is left.
        """


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend may know about its engine.

    Args:
        data_dir: the engine's data directory; a backend keeps programs and caches below
            ``data_dir / "backends" / name``.
        engine_id: short and unique on this host; part of every host-wide name.
        settings: the user's ``[backends.NAME]`` settings.
    """

    data_dir: Path
    engine_id: str
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
