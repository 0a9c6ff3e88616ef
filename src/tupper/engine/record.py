"""Records of sandboxes and snapshots as JSON text, for the store, and back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tupper.core.backend import AgentAddress, MachineRecord, Mount
from tupper.core.lifecycle import EndReason, OnTimeout, State
from tupper.core.sandbox import Ingress, SandboxRecord
from tupper.core.snapshot import Saved, SnapshotRecord
from tupper.core.volume import VolumeMount
from tupper.protocol.fields import Fields, parse_object


def render_record(record: SandboxRecord | SnapshotRecord) -> str:
    """The record as JSON text."""
    return json.dumps(dataclasses.asdict(record), default=str, separators=(",", ":"))


def parse_record(text: str) -> SandboxRecord:
    """The record of a JSON text that :func:`render_record` or an older tupper wrote.

    Keys that are absent have their default, so a field may be added without a migration.
    """
    f = parse_object(text)
    machine, agent = f.child("machine"), f.child("agent")
    attachment, reason = f.child("attachment"), f.text("end_reason")
    plain: dict[str, Any] = {
        **{name: f.text(name) for name in _TEXTS},
        **{
            name: f.number(name) or 0.0
            for name in ("created_at", "started_at", "ended_at", "paused_at", "cpus")
        },
        **{name: f.number(name) for name in ("deadline", "timeout_s", "idle_timeout_s")},
        **{name: f.whole(name) or 0 for name in _WHOLES},
    }
    return SandboxRecord(
        **plain,
        state=State(f.text("state")),
        metadata=f.text_map("metadata"),
        mounts=tuple(_mount(item) for item in f.objects("mounts")),
        ports=_ports(f),
        allow_internet=f.flag("allow_internet") is not False,
        allow_out=f.texts("allow_out"),
        deny_out=f.texts("deny_out"),
        allow_host_ports=f.wholes("allow_host_ports"),
        volumes=tuple(
            VolumeMount(item.text("name"), item.text("path"), item.text("volume_id"))
            for item in f.objects("volumes")
        ),
        ingress=_ingress(f.child("ingress") or Fields({})),
        machine=_machine(machine) if machine else None,
        agent=_address(agent) if agent else None,
        attachment=attachment.values if attachment else None,
        end_reason=EndReason(reason) if reason else None,
        on_timeout=OnTimeout(f.text("on_timeout") or "kill"),
        pause_memory=f.flag("pause_memory") is not False,
        auto_resume=f.flag("auto_resume") is True,
        saved=_saved(saved) if (saved := f.child("saved")) else None,
    )


def parse_snapshot(text: str) -> SnapshotRecord:
    """The snapshot of a JSON text that :func:`render_record` wrote."""
    f = parse_object(text)
    names = ("id", "name", "tag", "sandbox_id", "template", "image", "owner_key")
    return SnapshotRecord(
        **{name: f.text(name) for name in names},
        saved=_saved(f.child("saved") or Fields({})),
        cpus=f.number("cpus") or 0.0,
        memory_mib=f.whole("memory_mib") or 0,
        disk_mib=f.whole("disk_mib") or 0,
        pids=f.whole("pids") or 0,
        allow_internet=f.flag("allow_internet") is not False,
        allow_out=f.texts("allow_out"),
        deny_out=f.texts("deny_out"),
        created_at=f.number("created_at") or 0.0,
    )


def render_saved(saved: Saved) -> str:
    """A saved machine's facts as JSON text, to lie beside it."""
    return json.dumps(dataclasses.asdict(saved), separators=(",", ":"))


def parse_saved(text: str) -> Saved:
    """The facts of a JSON text that :func:`render_saved` wrote."""
    return _saved(parse_object(text))


def _saved(f: Fields) -> Saved:
    data = f.child("data")
    names = ("backend", "version", "token", "hostname", "agent", "rootfs_digest")
    return Saved(
        **{name: f.text(name) for name in names},
        data=data.values if data else {},
        memory=f.flag("memory") is not False,
        texts=f.text_map("texts"),
        saved_at=f.number("saved_at") or 0.0,
        size_bytes=f.whole("size_bytes") or 0,
    )


_TEXTS = (
    "id", "token", "name", "template", "image", "rootfs_digest", "backend", "isolation",
    "mechanism", "kernel", "boot_id", "started_by", "end_detail", "last_words", "purpose",
    "doing", "agent_digest",
    "owner_key", "traffic_token",
)  # fmt: skip
_WHOLES = ("memory_mib", "disk_mib", "pids", "owner_pid", "owner_start_ticks")


def _ports(f: Fields) -> dict[int, int]:
    ports = f.child("ports") or Fields({})
    return {int(guest): ports.whole(guest) or 0 for guest in ports.values}


def _ingress(f: Fields) -> Ingress:
    return Ingress(
        f.flag("is_public") is not False, f.text("request_host"), f.wholes("https_ports")
    )


def _mount(f: Fields) -> Mount:
    return Mount(Path(f.text("host_path")), f.text("guest_path"), f.flag("read_only") is True)


def _address(f: Fields) -> AgentAddress:
    return AgentAddress(f.text("kind"), f.text("path"), f.text("host"), f.whole("port") or 0)


def _machine(f: Fields) -> MachineRecord:
    data = f.child("data")
    return MachineRecord(
        f.text("backend"),
        f.text("sandbox_id"),
        f.whole("pid") or 0,
        f.whole("start_ticks") or 0,
        _address(f.child("agent") or Fields({})),
        data.values if data else {},
    )
