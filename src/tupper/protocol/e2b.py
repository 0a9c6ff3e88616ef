"""The REST shapes of E2B, and our extensions in them, to and from the core's types. No I/O.

Source: the published SDKs ``e2b`` for Python 2.45 to 2.63 and for JavaScript 2.45 to 2.51, as
recorded: what they send, which keys they need, which values they refuse.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict
from urllib.parse import unquote

from tupper.core.backend import Isolation, Mount
from tupper.core.errors import InvalidArgument, TupperError
from tupper.core.lifecycle import OnTimeout, State
from tupper.core.sandbox import CreateRequest, Ingress, PortRequest, SandboxRecord
from tupper.core.volume import VolumeMount
from tupper.protocol.e2b_network import parse_ingress, parse_reach
from tupper.protocol.fields import Fields
from tupper.protocol.reference import names_host_files
from tupper.protocol.unsupported import NotYet

ENVD_VERSION = "0.6.13"
ENVD_PORT = 49983
CLIENT_ID = "local"
V1_TIMEOUT_S = 15.0
V2_TIMEOUT_S = 300.0

# Keys of create that this tupper cannot honour. Ignoring one would be a silent lie.
_NOT_YET = ("iam",)
_KNOWN = (
    "templateID", "timeout", "metadata", "envVars", "secure", "allow_internet_access", "autoPause",
    "autoPauseMemory", "autoResume", "network", "iam", "mcp", "volumeMounts", "tupper",
)  # fmt: skip
_OURS = (
    "image", "backend", "minIsolation", "name", "cpus", "memoryMiB", "diskMiB", "pids", "mounts",
    "ports", "idleTimeout", "workdir", "user", "allowHostPorts", "backendOptions", "ownerPid",
    "ownerStart",
)  # fmt: skip


def create_request(body: Fields, *, default_timeout_s: float) -> CreateRequest:
    """The request of a create body, E2B's keys and ours below ``tupper``.

    Raises:
        InvalidArgument: a value has the wrong type.
        NotYet: it asks for what does not exist here; naming the key.
    """
    _refuse_unknown(body)
    ours = body.child("tupper") or Fields({})
    ours.refuse_unknown(_OURS)
    network = body.child("network") or Fields({})
    allow_out, deny_out = parse_reach(network)
    internet = body.flag("allow_internet_access")
    level = ours.text("minIsolation")
    never = body.has("timeout") and body.values["timeout"] is None
    timeout_s = body.number("timeout")
    return CreateRequest(
        template=body.text("templateID") or "base",
        image=ours.text("image"),
        backend=ours.text("backend"),
        min_isolation=_isolation(level) if level else None,
        name=ours.text("name"),
        metadata=body.text_map("metadata"),
        env=body.text_map("envVars"),
        timeout_s=None if never else default_timeout_s if timeout_s is None else timeout_s,
        idle_timeout_s=ours.number("idleTimeout"),
        cpus=ours.number("cpus"),
        memory_mib=ours.whole("memoryMiB"),
        disk_mib=ours.whole("diskMiB"),
        pids=ours.whole("pids"),
        mounts=tuple(_mount(item) for item in ours.objects("mounts")),
        ports=tuple(
            PortRequest(item.whole("guest") or 0, item.whole("host") or 0)
            for item in ours.objects("ports")
        ),
        workdir=ours.text("workdir"),
        user=ours.text("user"),
        allow_internet=internet,
        allow_out=allow_out,
        deny_out=deny_out,
        allow_host_ports=ours.wholes("allowHostPorts"),
        ingress=_ingress(network, body),
        volumes=tuple(_volume(item) for item in body.objects("volumeMounts")),
        backend_options=(ours.child("backendOptions") or Fields({})).values,
        owner_pid=ours.whole("ownerPid") or 0,
        owner_start_ticks=ours.whole("ownerStart") or 0,
        **_lifecycle(body),
    )


class Lifecycle(TypedDict):
    """What happens when a sandbox's time is over."""

    on_timeout: OnTimeout
    pause_memory: bool
    auto_resume: bool


def _lifecycle(body: Fields) -> Lifecycle:
    """The keys of create that decide on the end of a sandbox's time.

    Raises:
        InvalidArgument: they contradict each other, as E2B has it.
    """
    pauses = body.flag("autoPause") is True
    memory = body.flag("autoPauseMemory") is not False
    resumes = (body.child("autoResume") or Fields({})).flag("enabled") is True
    if not memory and not pauses:
        raise InvalidArgument("autoPauseMemory needs autoPause")
    if not memory and resumes:
        raise InvalidArgument("autoResume needs a pause that keeps the memory")
    action = OnTimeout.PAUSE if pauses else OnTimeout.KILL
    return {"on_timeout": action, "pause_memory": memory, "auto_resume": resumes}


def needs_local_caller(request: CreateRequest) -> str:
    """What in a request only a caller on this machine may ask for; empty if nothing."""
    if request.mounts:
        return "mounts of host directories"
    if request.owner_pid:
        return "an owner process"
    if request.allow_host_ports:
        return "ports of the host"
    if names_host_files(request.image):
        return "an image from a file of the host"
    return ""


def _ingress(network: Fields, body: Fields) -> Ingress:
    ingress = parse_ingress(network)
    if not ingress.is_public and body.flag("secure") is False:
        raise InvalidArgument("network.allowPublicTraffic=false needs a secure sandbox")
    return ingress


def _refuse_unknown(body: Fields) -> None:
    body.refuse_unknown(_KNOWN)
    asked = [key for key in _NOT_YET if body.values.get(key)]
    if asked:
        raise NotYet(f"this tupper does not support {', '.join(asked)}")


def _isolation(text: str) -> Isolation:
    try:
        return Isolation(text)
    except ValueError as error:
        known = ", ".join(level.value for level in Isolation)
        raise InvalidArgument(
            f"{text!r} is no isolation tier", hint=f"there are: {known}"
        ) from error


def _volume(item: Fields) -> VolumeMount:
    item.refuse_unknown(("name", "path"))
    return VolumeMount(item.text("name"), item.text("path"))


def _mount(item: Fields) -> Mount:
    return Mount(Path(item.text("hostPath")), item.text("guestPath"), item.flag("readOnly") is True)


def render_sandbox(
    record: SandboxRecord, *, domain: str | None, health: str, local: bool
) -> dict[str, object]:
    """The ``Sandbox`` object: the answer to create and connect."""
    out: dict[str, object] = {
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": record.token,
        "trafficAccessToken": record.traffic_token or None,
        "domain": domain,
        "tupper": render_extension(record, health=health, local=local),
    }
    if record.name:
        out["alias"] = record.name
    return out


def render_detail(
    record: SandboxRecord, *, domain: str | None, health: str, local: bool
) -> dict[str, object]:
    """The ``SandboxDetail`` object: the answer to get."""
    network: dict[str, object] = {}
    if record.allow_out:
        network["allowOut"] = list(record.allow_out)
    if record.deny_out:
        network["denyOut"] = list(record.deny_out)
    network |= _render_ingress(record.ingress)
    out = render_listed(record, health=health, local=local) | {
        "envdAccessToken": record.token,
        "allowInternetAccess": record.allow_internet,
        "domain": domain,
        "lifecycle": {"autoResume": record.auto_resume, "onTimeout": str(record.on_timeout)},
    }
    if record.state is State.PAUSED and record.saved is not None:
        out["pauseMode"] = "full" if record.saved.memory else "filesystem"
        out["envdUnresponsiveAtPause"] = False
    if network:
        out["network"] = network
    return out


def _render_ingress(ingress: Ingress) -> dict[str, object]:
    out: dict[str, object] = {}
    if not ingress.is_public:
        out["allowPublicTraffic"] = False
    if ingress.request_host:
        out["maskRequestHost"] = ingress.request_host
    if ingress.https_ports:
        out["httpsPorts"] = list(ingress.https_ports)
    return out


def render_listed(record: SandboxRecord, *, health: str, local: bool) -> dict[str, object]:
    """The ``ListedSandbox`` object: one of a listing. Never with a token."""
    out: dict[str, object] = {
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT_ID,
        "startedAt": render_time(record.started_at or record.created_at),
        "endAt": render_time(_end_of(record)),
        "cpuCount": max(1, math.ceil(record.cpus)),
        "memoryMB": record.memory_mib,
        "diskSizeMB": record.disk_mib,
        "metadata": dict(record.metadata),
        "state": "paused" if record.state is State.PAUSED else "running",
        "envdVersion": ENVD_VERSION,
        "tupper": render_extension(record, health=health, local=local),
    }
    if record.name:
        out["alias"] = record.name
    if record.volumes:
        out["volumeMounts"] = [{"name": v.name, "path": v.path} for v in record.volumes]
    return out


def _end_of(record: SandboxRecord) -> float:
    if record.ended_at or record.paused_at:
        return record.ended_at or record.paused_at
    # E2B's clients need a time. A sandbox without an end has one that is far away.
    return record.deadline if record.deadline is not None else _NEVER


_NEVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC).timestamp()


def render_extension(record: SandboxRecord, *, health: str, local: bool) -> dict[str, object]:
    """Our own key of every sandbox object."""
    out: dict[str, object] = {
        "state": str(record.state),
        "backend": record.backend,
        "isolation": record.isolation,
        "mechanism": record.mechanism,
        "kernel": record.kernel,
        "name": record.name,
        "image": record.image,
        "cpus": record.cpus,
        "diskMiB": record.disk_mib,
        "pids": record.pids,
        "deadline": record.deadline,
        "idleTimeout": record.idle_timeout_s,
        "ports": {str(guest): f"127.0.0.1:{host}" for guest, host in record.ports.items()},
        "endReason": str(record.end_reason) if record.end_reason else None,
        "endDetail": record.end_detail,
        "health": health,
        "startedBy": record.started_by,
        "pausedAt": record.paused_at or None,
        "savedBytes": record.saved.size_bytes if record.saved is not None else None,
        "plainPorts": record.ingress.is_plain,
    }
    if local and record.agent is not None and record.state is State.RUNNING:
        out["agent"] = record.agent.as_json()
    return out


def render_time(unix_s: float) -> str:
    """RFC 3339 with microseconds, in UTC."""
    moment = dt.datetime.fromtimestamp(unix_s, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Unix seconds of an RFC 3339 time."""
    try:
        moment = dt.datetime.fromisoformat(text.strip().replace(" ", "+"))
    except ValueError as error:
        raise InvalidArgument(f"{text!r} is not a time of RFC 3339") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return moment.timestamp()


def parse_metadata_filter(text: str) -> dict[str, str]:
    """The ``metadata`` query value after its normal decoding.

    The SDKs encode each key and value, then the pairs, then the whole once more.

    Raises:
        InvalidArgument: a pair without exactly one ``=``.
    """
    pairs: dict[str, str] = {}
    for pair in unquote(text).split("&"):
        if not pair:
            continue
        if pair.count("=") != 1:
            raise InvalidArgument(f"the metadata filter {text!r} is malformed")
        key, _, value = pair.partition("=")
        pairs[unquote(key)] = unquote(value)
    return pairs


def render_token(after: tuple[float, str], *, ascending: bool) -> str:
    """The opaque token of the next page."""
    text = f"{render_time(after[0])}__{after[1]}" + ("__asc" if ascending else "")
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_token(text: str, *, ascending: bool) -> tuple[float, str]:
    """Where a token's page begins.

    Raises:
        InvalidArgument: it is none, or one of the other order.
    """
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument("Invalid next token") from error
    parts = plain.split("__")
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] != "asc"):
        raise InvalidArgument("Invalid next token")
    if (len(parts) == 3) != ascending:
        raise InvalidArgument("Invalid next token")
    return parse_time(parts[0]), parts[1]


def file_signature(
    path: str, operation: str, username: str, token: str, expiration: str = ""
) -> str:
    """The signature of a file URL.

    Args:
        path: as in the query, not resolved.
        operation: ``read`` or ``write``.
        username: as in the query; empty if none.
        token: of the sandbox.
        expiration: ``signature_expiration`` as in the query; empty if none.
    """
    text = ":".join([path, operation, username, token, *([expiration] if expiration else [])])
    digest = hashlib.sha256(text.encode()).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


STATUS: Mapping[str, int] = {
    "invalid_argument": 400,
    "template_error": 400,
    "image_error": 400,
    "image_pull_failed": 400,
    "image_rejected": 400,
    "platform_not_found": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "already_exists": 409,
    "conflict": 409,
    "idempotency_request_mismatch": 409,
    "idempotency_in_progress": 409,
    "limit_reached": 429,
    "capacity_reached": 429,
    "out_of_memory": 429,
    "unsupported": 501,
    "deadline_exceeded": 504,
    "out_of_disk": 507,
}


def status_of(code: str) -> int:
    """The HTTP status of an error's code."""
    if code in STATUS:
        return STATUS[code]
    if code.endswith("not_found") and code != "program_not_found":
        return 404
    if code.endswith(("unavailable", "unreachable")):
        return 503
    return 500


def render_error(error: TupperError) -> dict[str, object]:
    """The body of an error answer."""
    body: dict[str, object] = {
        "code": status_of(error.code),
        "message": error.message,
        "error_code": error.code,
    }
    if error.hint:
        body["hint"] = error.hint
    return body
