"""A sandbox that lies on disk: paused, or kept as a snapshot to start others from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved machine, and what its restore has to know. Its files lie in a directory beside.

    Args:
        backend, version, data: as :class:`tupper.core.backend.Snapshot` has them.
        memory: whether processes and memory were saved, or files only.
        token: that the agent in it asks for.
        hostname: that the guest has in it.
        texts: guest path → text of the small files of ``/etc`` that the host gave it.
        agent: digest of the agent that runs in it.
        rootfs_digest: the root filesystem that it stands on.
        saved_at: unix seconds.
        size_bytes: of its files.
    """

    backend: str
    version: str = ""
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    memory: bool = True
    token: str = ""
    hostname: str = ""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    agent: str = ""
    rootfs_digest: str = ""
    saved_at: float = 0.0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot that sandboxes can be started from.

    Args:
        id: ``p`` and 20 characters.
        name: given by the user; empty if none.
        tag: beside the name; ``default`` if none was given.
        saved: the machine.
        sandbox_id: which sandbox it was.
        template, image: what that was made from.
        cpus, memory_mib, disk_mib, pids: its limits.
        allow_internet, allow_out, deny_out: what it could reach.
        created_at: unix seconds.
        owner_key: the id of the API key that it belongs to; empty for the machine's own user.
    """

    id: str
    saved: Saved
    name: str = ""
    tag: str = "default"
    sandbox_id: str = ""
    template: str = ""
    image: str = ""
    cpus: float = 0.0
    memory_mib: int = 0
    disk_mib: int = 0
    pids: int = 0
    allow_internet: bool = True
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    created_at: float = 0.0
    owner_key: str = ""
