"""A sandbox as its user asks for it, and as the engine remembers it.

Both are plain frozen data: the server makes requests from JSON, the engine keeps records in the
store, and neither knows the other's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tupper.core.backend import AgentAddress, Isolation, MachineRecord, Mount
from tupper.core.lifecycle import EndReason, OnTimeout, State
from tupper.core.snapshot import Saved
from tupper.core.volume import VolumeMount


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A port inside that shall be reachable on the host's loopback.

    Args:
        guest: the port inside.
        host: the port on the host; 0 for any free one.
    """

    guest: int
    host: int = 0


@dataclass(frozen=True, slots=True)
class Ingress:
    """How requests from outside reach the ports inside; the agent's own port is never meant.

    Args:
        is_public: whether anybody may; else a request must bring the sandbox's traffic token.
        request_host: what services inside see as ``Host``; ``${PORT}`` stands for the port. Empty
            for what the client sent.
        https_ports: ports inside that speak TLS.
    """

    is_public: bool = True
    request_host: str = ""
    https_ports: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether bytes that go straight to a port inside are what this asks for."""
        return self.is_public and not self.request_host and not self.https_ports


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """What a new sandbox shall be. None and empty mean the setting or the image's own value.

    Args:
        template: name of a template; not used when ``image`` is given.
        image: an image reference.
        backend: which backend; empty for the default.
        min_isolation: refuse anything weaker.
        name: unique among living sandboxes.
        metadata: labels.
        env: for every process inside.
        timeout_s: life counted from readiness; None for no end.
        idle_timeout_s: ends after this long without activity; None for never.
        cpus, memory_mib, disk_mib, pids: the limits.
        mounts: host directories to be seen inside.
        ports: ports to publish.
        workdir, user: the defaults for commands.
        allow_internet: whether the internet can be reached.
        allow_out, deny_out: more rules, CIDRs.
        allow_host_ports: ports of the host's loopback that the guest may reach.
        ingress: how its ports are reached through the edge.
        volumes: volumes to be seen inside.
        backend_options: checked by the backend.
        owner_pid, owner_start_ticks: the process that the sandbox is bound to; 0 for none.
        on_timeout: what happens when its time is over.
        pause_memory: whether that pause keeps processes and memory, or files only.
        auto_resume: whether a connection to a port of the paused sandbox resumes it.
        owner_key: the id of the API key that it belongs to; empty for the machine's own user.
    """

    template: str = "base"
    image: str = ""
    backend: str = ""
    min_isolation: Isolation | None = None
    name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout_s: float | None = 300.0
    idle_timeout_s: float | None = None
    cpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    pids: int | None = None
    mounts: tuple[Mount, ...] = ()
    ports: tuple[PortRequest, ...] = ()
    workdir: str = ""
    user: str = ""
    allow_internet: bool | None = None
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    allow_host_ports: tuple[int, ...] = ()
    ingress: Ingress = field(default_factory=Ingress)
    volumes: tuple[VolumeMount, ...] = ()
    backend_options: Mapping[str, object] = field(default_factory=dict[str, object])
    owner_pid: int = 0
    owner_start_ticks: int = 0
    on_timeout: OnTimeout = OnTimeout.KILL
    pause_memory: bool = True
    auto_resume: bool = False
    owner_key: str = ""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """All that is remembered of a sandbox, also over a restart of the background process.

    Args:
        id: ``i`` and 20 characters.
        state: where it is in its life.
        token: the secret its agent asks for.
        name: given by the user; empty if none.
        template: as asked for, or the image reference.
        image: the image reference; empty when made from a template.
        rootfs_digest: the root filesystem in the store.
        metadata: labels.
        created_at, started_at, ended_at: unix seconds; 0 when it has not happened.
        deadline: when it ends, unix seconds; None for never.
        timeout_s: as asked for at create.
        idle_timeout_s: None for never.
        cpus, memory_mib, disk_mib, pids: its limits.
        mounts: host directories, those of its volumes included.
        volumes: which of the mounts are volumes.
        ports: guest port → host port.
        allow_internet: whether the internet can be reached.
        allow_out, deny_out, allow_host_ports: more of its network policy.
        backend, isolation, mechanism, kernel: what isolates it.
        machine: for ``Backend.adopt``; None until it was started.
        agent: where the agent's socket was moved to; None until then.
        attachment: the network's own facts, for taking it down.
        owner_pid, owner_start_ticks: the process it is bound to; 0 for none.
        owner_key: the id of the API key that it belongs to; empty for the machine's own user.
        ingress: how its ports are reached through the edge.
        traffic_token: what a request to its ports must bring if they are not public.
        boot_id: of the host, when it was made.
        started_by: version of tupper.
        end_reason, end_detail, last_words: why it ended.
        purpose: empty for a user's own; ``build`` for one that a build works in.
        on_timeout, pause_memory, auto_resume: as asked for at create.
        doing: what is being done to it: ``pause``, ``resume``, ``snapshot``; empty for nothing.
        saved: the machine that lies on disk while it is paused.
        paused_at: unix seconds; 0 unless it is paused.
        agent_digest: of the agent that runs in it.
    """

    id: str
    state: State
    token: str
    name: str = ""
    template: str = ""
    image: str = ""
    rootfs_digest: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    created_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    deadline: float | None = None
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    cpus: float = 0.0
    memory_mib: int = 0
    disk_mib: int = 0
    pids: int = 0
    mounts: tuple[Mount, ...] = ()
    ports: Mapping[int, int] = field(default_factory=dict[int, int])
    allow_internet: bool = True
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    allow_host_ports: tuple[int, ...] = ()
    backend: str = ""
    isolation: str = ""
    mechanism: str = ""
    kernel: str = ""
    machine: MachineRecord | None = None
    agent: AgentAddress | None = None
    attachment: Mapping[str, object] | None = None
    owner_pid: int = 0
    owner_start_ticks: int = 0
    owner_key: str = ""
    ingress: Ingress = field(default_factory=Ingress)
    traffic_token: str = ""
    volumes: tuple[VolumeMount, ...] = ()
    boot_id: str = ""
    started_by: str = ""
    end_reason: EndReason | None = None
    end_detail: str = ""
    last_words: str = ""
    purpose: str = ""
    on_timeout: OnTimeout = OnTimeout.KILL
    pause_memory: bool = True
    auto_resume: bool = False
    doing: str = ""
    saved: Saved | None = None
    paused_at: float = 0.0
    agent_digest: str = ""
