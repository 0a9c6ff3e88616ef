"""From the server's JSON to the SDK's values. No I/O.

Servers are trusted more than guests, but a missing key is still a clear error and not a KeyError.
"""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import envd
from tupper.protocol.connect import as_list, as_object
from tupper.sdk._shared.errors import ProtocolException
from tupper.sdk._shared.types import (
    EntryInfo,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    ProcessInfo,
    SandboxInfo,
    SandboxInfoLifecycle,
    SandboxMetrics,
    SandboxQuery,
    SandboxState,
    SnapshotInfo,
    WriteInfo,
)

NEVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Grant:
    """What create and connect answer: how to reach the sandbox's agent.

    Args:
        sandbox_id: whose.
        token: for its agent; empty if it asks for none.
        socket: the path of the agent's socket, if it is on this machine; else empty.
        domain: under which ports are reachable; empty if there is none.
        traffic_token: for its ports; None if they need none.
        ports: port inside → address outside, of those that are published already.
        plain_ports: whether bytes may go straight to a port, past the server's edge.
    """

    sandbox_id: str
    token: str = ""
    socket: str = ""
    domain: str = ""
    traffic_token: str | None = None
    ports: Mapping[int, str] = field(default_factory=dict[int, str])
    plain_ports: bool = True


def read_fields(value: object, what: str) -> envd.Fields:
    """The fields of an object of the server's.

    Errors:
        ProtocolException: it is none.
    """
    try:
        return envd.Fields(value, what)
    except GuestMisbehaved as error:
        raise ProtocolException(error.message) from error


def parse_grant(value: object) -> Grant:
    """The answer of create and connect."""
    fields = read_fields(value, "sandbox")
    ours = envd.Fields(fields.get("tupper") or {}, "sandbox: tupper")
    agent = envd.Fields(ours.get("agent") or {}, "sandbox: agent")
    sandbox_id = fields.text("sandboxID")
    if not sandbox_id:
        raise ProtocolException("the server's answer names no sandbox")
    return Grant(
        sandbox_id=sandbox_id,
        token=fields.text("envdAccessToken"),
        socket=agent.text("path") if agent.text("kind") == "unix" else "",
        domain=fields.text("domain"),
        traffic_token=fields.optional_text("trafficAccessToken"),
        ports=_parse_ports(ours),
        plain_ports=ours.flag("plainPorts") if ours.has("plainPorts") else True,
    )


def _parse_ports(ours: envd.Fields) -> dict[int, str]:
    return {int(port): at for port, at in ours.mapping("ports").items() if port.isdigit()}


def parse_info(value: object) -> SandboxInfo:
    """One sandbox of get and list."""
    fields = read_fields(value, "sandbox")
    ours = envd.Fields(fields.get("tupper") or {}, "sandbox: tupper")
    end = fields.optional_text("endAt")
    return SandboxInfo(
        sandbox_id=fields.text("sandboxID"),
        sandbox_domain=fields.optional_text("domain"),
        template_id=fields.text("templateID"),
        name=ours.optional_text("name") or fields.optional_text("alias"),
        metadata=fields.mapping("metadata"),
        started_at=envd.parse_time(fields.text("startedAt"), "sandbox: startedAt"),
        end_at=NEVER if end is None else envd.parse_time(end, "sandbox: endAt"),
        state=_parse_state(fields.text("state")),
        cpu_count=fields.integer("cpuCount"),
        memory_mb=fields.integer("memoryMB"),
        envd_version=fields.text("envdVersion"),
        allow_internet_access=_optional_flag(fields, "allowInternetAccess"),
        network=as_object(fields.get("network")),
        lifecycle=_parse_lifecycle(fields.get("lifecycle")),
        envd_unresponsive_at_pause=_optional_flag(fields, "envdUnresponsiveAtPause"),
        backend=ours.text("backend"),
        isolation=ours.text("isolation"),
        mechanism=ours.text("mechanism"),
        kernel=ours.text("kernel"),
        image=ours.text("image") or None,
        disk_mb=ours.integer("diskMiB") or fields.integer("diskSizeMB"),
        pids=ours.integer("pids"),
        idle_timeout=ours.number("idleTimeout") if ours.has("idleTimeout") else None,
        ports=_parse_ports(ours),
        health=ours.text("health", "ok"),
        end_reason=ours.optional_text("endReason"),
        end_detail=ours.text("endDetail"),
    )


def _parse_state(text: str) -> SandboxState:
    try:
        return SandboxState(text)
    except ValueError:
        return SandboxState.RUNNING


def _optional_flag(fields: envd.Fields, key: str) -> bool | None:
    return fields.flag(key) if fields.has(key) else None


def _parse_lifecycle(value: object) -> SandboxInfoLifecycle | None:
    if as_object(value) is None:
        return None
    fields = envd.Fields(value, "sandbox: lifecycle")
    ends = fields.text("onTimeout")
    return {
        "on_timeout": "pause" if ends == "pause" else "kill",
        "auto_resume": fields.flag("autoResume"),
    }


def parse_snapshot(value: object) -> SnapshotInfo:
    """The answer of create_snapshot."""
    fields = read_fields(value, "snapshot")
    return SnapshotInfo(fields.text("snapshotID"), list(fields.texts("names")))


def parse_snapshots(value: object) -> list[SnapshotInfo]:
    """The answer of list_snapshots."""
    items = as_list(value)
    if items is None:
        raise ProtocolException("the server's list of snapshots is not an array")
    return [parse_snapshot(item) for item in items]


def parse_infos(value: object) -> list[SandboxInfo]:
    """The answer of list."""
    items = as_list(value)
    if items is None:
        raise ProtocolException("the server's list of sandboxes is not an array")
    return [parse_info(item) for item in items]


def parse_metrics(value: object) -> list[SandboxMetrics]:
    """The answer of metrics."""
    return [_parse_sample(item) for item in as_list(value) or ()]


def _parse_sample(value: object) -> SandboxMetrics:
    fields = read_fields(value, "metrics")
    return SandboxMetrics(
        cpu_count=fields.integer("cpuCount"),
        cpu_used_pct=fields.number("cpuUsedPct"),
        disk_total=fields.integer("diskTotal"),
        disk_used=fields.integer("diskUsed"),
        mem_total=fields.integer("memTotal"),
        mem_used=fields.integer("memUsed"),
        mem_cache=fields.integer("memCache"),
        timestamp=envd.parse_time(fields.text("timestamp"), "metrics: timestamp"),
    )


def render_metadata(metadata: Mapping[str, str]) -> str:
    """A filter by metadata: encoded once per pair and once as a whole.

    Source: wire specification 4.6.
    """
    quote = urllib.parse.quote
    return urllib.parse.urlencode({quote(key): quote(value) for key, value in metadata.items()})


def render_query(query: SandboxQuery | None, order: str | None) -> dict[str, str]:
    """The parameters of list."""
    params: dict[str, str] = {}
    if query is not None:
        if query.metadata:
            params["metadata"] = render_metadata(query.metadata)
        if query.state:
            params["state"] = ",".join(SandboxState(state).value for state in query.state)
        if query.started_after is not None:
            params["startedAfter"] = query.started_after.isoformat()
        if query.template:
            params["template"] = query.template
    if order:
        params["order"] = order
    return params


_FILE_TYPES = {
    envd.FileType.FILE: FileType.FILE,
    envd.FileType.DIRECTORY: FileType.DIR,
    envd.FileType.SYMLINK: FileType.SYMLINK,
}


def entry_from_envd(entry: envd.EntryInfo) -> EntryInfo:
    """An entry in E2B's shape. Its type is None for sockets, devices and dangling links."""
    return EntryInfo(
        name=entry.name,
        type=_FILE_TYPES.get(entry.type),
        path=entry.path,
        metadata=dict(entry.metadata) or None,
        size=entry.size,
        mode=entry.mode,
        permissions=entry.permissions,
        owner=entry.owner,
        group=entry.group,
        modified_time=entry.modified_time,
        symlink_target=entry.symlink_target,
    )


def event_from_envd(event: envd.FilesystemEvent) -> FilesystemEvent | None:
    """A watch's event in E2B's shape; None for kinds that we do not know."""
    if event.type is envd.EventType.UNSPECIFIED:
        return None
    entry = None if event.entry is None else entry_from_envd(event.entry)
    return FilesystemEvent(event.name, FilesystemEventType(event.type.value), entry)


def process_from_envd(process: envd.ProcessInfo) -> ProcessInfo:
    """A process in E2B's shape."""
    return ProcessInfo(
        pid=process.pid,
        tag=process.tag,
        cmd=process.cmd,
        args=list(process.args),
        envs=dict(process.envs),
        cwd=process.cwd,
    )


def parse_write(value: object) -> WriteInfo:
    """The answer of an upload of one file."""
    items = as_list(value)
    if not items:
        raise ProtocolException("the answer to an upload names no file")
    fields = read_fields(items[0], "written file")
    kind = fields.text("type")
    return WriteInfo(
        name=fields.text("name"),
        type=FileType(kind) if kind in ("file", "dir") else None,
        path=fields.text("path"),
        metadata=fields.mapping("metadata") or None,
    )
