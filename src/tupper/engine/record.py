"""A sandbox's record as JSON text, for the store, and back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tupper.core.backend import AgentAddress, MachineRecord, Mount
from tupper.core.lifecycle import EndReason, State
from tupper.core.sandbox import Ingress, SandboxRecord
from tupper.core.volume import VolumeMount
from tupper.protocol.fields import Fields, parse_object


def render_record(record: SandboxRecord) -> str:
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
            name: f.number(name) or 0.0 for name in ("created_at", "started_at", "ended_at", "cpus")
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
    )


_TEXTS = (
    "id", "token", "name", "template", "image", "rootfs_digest", "backend", "isolation",
    "mechanism", "kernel", "boot_id", "started_by", "end_detail", "last_words", "purpose",
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
