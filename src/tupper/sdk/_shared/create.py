"""From the arguments of ``Sandbox.create`` to the body of the request. No I/O.

Source of the body: ``docs/design/interfaces.md`` and section 4.2 of the wire specification.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from tupper.core.liveness import start_ticks
from tupper.protocol.connect import as_object
from tupper.sdk._shared.errors import InvalidArgumentException, UnsupportedException
from tupper.sdk._shared.lifecycle import render_lifecycle
from tupper.sdk._shared.types import (
    ALL_TRAFFIC,
    Mount,
    MountSpec,
    SandboxNetworkSelectorContext,
    VolumeSpec,
)
from tupper.sdk._shared.volume import render_mounts

DEFAULT_TEMPLATE = "base"
DEFAULT_TIMEOUT_S = 300

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
PortSpec = Sequence[int | str] | Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Creation:
    """The arguments of create, each None where the caller said nothing."""

    template: str | None = None
    timeout: float | None = None
    metadata: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    envs: Mapping[str, str] | None = None
    secure: bool | None = None
    allow_internet_access: bool | None = None
    network: Mapping[str, object] | None = None
    lifecycle: Mapping[str, object] | None = None
    volume_mounts: Mapping[str, object] | None = None
    image: str | None = None
    backend: str | None = None
    min_isolation: str | None = None
    name: str | None = None
    cpus: float | None = None
    memory: int | str | None = None
    disk: int | str | None = None
    pids: int | None = None
    mounts: Sequence[MountSpec] | None = None
    volumes: VolumeSpec | None = None
    ports: PortSpec | None = None
    idle_timeout: float | None = None
    workdir: str | None = None
    user: str | None = None
    backend_options: Mapping[str, object] | None = None
    allow_host_ports: Sequence[int] | None = None
    owner: str | None = None
    fallback: Sequence[str] | None = None

    def without_backend(self) -> Creation:
        """The same, whatever makes it."""
        return replace(self, backend=None)

    def with_defaults(self, defaults: Mapping[str, object]) -> Creation:
        """Fill what the caller left open. An image given beats a template of the defaults."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        merged = {key: value for key, value in given.items() if value is not None}
        filled: dict[str, Any] = {**defaults, **merged}
        if "image" in merged and "template" not in merged:
            filled.pop("template", None)
        if "template" in merged and "image" not in merged:
            filled.pop("image", None)
        return Creation(**filled)  # core.config has checked the types


def render_creation(creation: Creation) -> dict[str, object]:
    """The body of ``POST /v2/sandboxes``.

    Errors:
        InvalidArgumentException: a value that cannot be used; the text names it.
    """
    body: dict[str, object] = {
        "templateID": creation.template or DEFAULT_TEMPLATE,
        "timeout": _parse_timeout(creation.timeout),
        "metadata": _parse_texts(creation, "metadata") | _parse_texts(creation, "labels"),
        "envVars": _parse_texts(creation, "envs"),
    }
    if creation.secure is not None:
        body["secure"] = creation.secure
    if creation.allow_internet_access is not None:
        body["allow_internet_access"] = creation.allow_internet_access
    if creation.volume_mounts:
        body["volumeMounts"] = render_mounts(creation.volume_mounts)
    if creation.network:
        body["network"] = _render_network(creation.network)
    body |= render_lifecycle(creation.lifecycle)
    if extension := _render_extension(creation):
        body["tupper"] = extension
    return body


def _render_extension(creation: Creation) -> dict[str, object]:
    values: dict[str, object | None] = {
        "image": creation.image,
        "backend": creation.backend,
        "minIsolation": creation.min_isolation,
        "name": creation.name,
        "cpus": creation.cpus,
        "memoryMiB": _optional_mib("memory", creation.memory),
        "diskMiB": _optional_mib("disk", creation.disk),
        "pids": creation.pids,
        "mounts": [*parse_mounts(creation.mounts), *parse_volumes(creation.volumes)] or None,
        "ports": parse_ports(creation.ports) or None,
        "idleTimeout": creation.idle_timeout,
        "workdir": creation.workdir,
        "user": creation.user,
        "backendOptions": dict(creation.backend_options or {}) or None,
        "allowHostPorts": list(creation.allow_host_ports or ()) or None,
        **_render_owner(creation.owner),
    }
    return {key: value for key, value in values.items() if value is not None}


def _render_owner(owner: str | None) -> dict[str, object | None]:
    """The process that the sandbox is bound to, so that a reused pid is not taken for it."""
    if owner is None:
        return {}
    if owner != "process":
        raise InvalidArgumentException(f"owner={owner!r}: it is 'process' or None")
    pid = os.getpid()
    return {"ownerPid": pid, "ownerStart": start_ticks(pid)}


def _parse_timeout(timeout: float | None) -> int | None:
    """Whole seconds, rounded up; None on the wire means never."""
    if timeout is None:
        return DEFAULT_TIMEOUT_S
    if timeout == math.inf:
        return None
    if not timeout > 0:
        raise InvalidArgumentException(
            f"timeout={timeout!r} is not a positive number of seconds", hint="math.inf means never"
        )
    return math.ceil(timeout)


def parse_lifetime(timeout: float) -> int:
    """The seconds of ``set_timeout``, rounded up; 0 ends the sandbox now."""
    if not 0 <= timeout < math.inf:
        raise InvalidArgumentException(f"timeout={timeout!r} is not a number of seconds from 0")
    return math.ceil(timeout)


def _parse_texts(creation: Creation, name: str) -> dict[str, str]:
    value: Mapping[object, object] = getattr(creation, name) or {}
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidArgumentException(f"{name}: {key!r} and its value must be text")
    return {str(key): str(text) for key, text in value.items()}


_EGRESS = {"allow_out": "allowOut", "deny_out": "denyOut"}
_INGRESS = {
    "allow_public_traffic": "allowPublicTraffic",
    "mask_request_host": "maskRequestHost",
    "https_ports": "httpsPorts",
}


def render_network_change(network: Mapping[str, object]) -> dict[str, object]:
    """The body of ``PUT /sandboxes/{id}/network``."""
    return _rename(network, {**_EGRESS, "allow_internet_access": "allow_internet_access"})


def _render_network(network: Mapping[str, object]) -> dict[str, object]:
    return _rename(network, {**_EGRESS, **_INGRESS})


def _rename(network: Mapping[str, object], known: Mapping[str, str]) -> dict[str, object]:
    body: dict[str, object] = {}
    rules = as_object(network.get("rules")) or {}
    for key, value in network.items():
        if value is None or (key not in known and not value):
            continue
        if key not in known:
            raise UnsupportedException(f"network: {key} is not supported here yet")
        body[known[key]] = _addresses(value, rules) if key in _EGRESS else value
    return body


def _addresses(value: object, rules: Mapping[str, object]) -> list[object]:
    if callable(value):  # E2B lets a function choose the addresses
        value = value(SandboxNetworkSelectorContext(ALL_TRAFFIC, rules))
    return list(cast("Iterable[object]", value))


def parse_mib(name: str, value: int | str) -> int:
    """A size in MiB, rounded up.

    Args:
        name: of the argument, for the error.
        value: MiB, or text such as ``512m`` or ``1.5GiB``; text without a unit is MiB too.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else ""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgumentException(
            f"{name}={value!r} is not a size", hint="write MiB as a number, or '512m', '1GiB'"
        )
    if text.strip().replace(".", "", 1).isdigit():
        return math.ceil(float(value))
    return math.ceil(float(match[1]) * _UNITS[match[2].lower()] / 2**20)


def _optional_mib(name: str, value: int | str | None) -> int | None:
    return None if value is None else parse_mib(name, value)


def parse_mounts(mounts: Sequence[MountSpec] | None) -> list[dict[str, object]]:
    """Mounts as the server wants them, host paths absolute.

    Args:
        mounts: each a :class:`Mount`, ``"host:guest[:ro|rw]"``, or a tuple of these parts.
    """
    return [_parse_mount(item) for item in mounts or ()]


def _parse_mount(item: MountSpec) -> dict[str, object]:
    if isinstance(item, Mount):
        return _render_mount(item.host_path, item.guest_path, "ro" if item.read_only else "rw")
    parts = item.split(":") if isinstance(item, str) else [os.fspath(part) for part in item]
    if len(parts) not in (2, 3):
        raise InvalidArgumentException(
            f"mount {item!r}: write it as 'host:guest' or 'host:guest:ro'"
        )
    return _render_mount(parts[0], parts[1], parts[2] if len(parts) == 3 else "rw")


def _render_mount(host: str | os.PathLike[str], guest: str, mode: str) -> dict[str, object]:
    path = Path(os.path.abspath(os.path.expanduser(host)))  # noqa: PTH100, PTH111 - keeps links
    if not path.is_dir():
        raise InvalidArgumentException(f"mount: {path} is not a directory on this host")
    if not guest.startswith("/"):
        raise InvalidArgumentException(f"mount: {guest!r} is not an absolute path in the sandbox")
    if mode not in ("ro", "rw"):
        raise InvalidArgumentException(f"mount: mode {mode!r} is neither 'ro' nor 'rw'")
    return {"hostPath": str(path), "guestPath": guest, "readOnly": mode == "ro"}


def parse_volumes(volumes: VolumeSpec | None) -> list[dict[str, object]]:
    """Mounts from a mapping of host directories, as Docker's SDK writes them."""
    mounts: list[dict[str, object]] = []
    for host, at in (volumes or {}).items():
        if isinstance(at, str):
            mounts.append(_render_mount(host, at, "rw"))
        elif "bind" in at:
            mounts.append(_render_mount(host, at["bind"], at.get("mode", "rw")))
        else:
            raise InvalidArgumentException(f"volume {host!r}: its 'bind' is missing")
    return mounts


def parse_ports(ports: PortSpec | None) -> list[dict[str, int]]:
    """Published ports.

    Args:
        ports: ``[8000]`` for any port outside, ``["8080:80"]`` or ``{8080: 80}`` for port 8080
            outside and 80 inside.
    """
    pairs: Iterable[tuple[int, int]]
    if isinstance(ports, Mapping):
        pairs = ((int(outside), int(inside)) for outside, inside in ports.items())
    else:
        pairs = (_parse_port(item) for item in ports or ())
    return [{"guest": check_port(inside), "host": outside} for outside, inside in pairs]


def _parse_port(item: int | str) -> tuple[int, int]:
    outside, _, inside = str(item).rpartition(":")
    try:
        return int(outside or 0), int(inside)
    except ValueError:
        raise InvalidArgumentException(f"port {item!r}: write it as 80 or '8080:80'") from None


def check_port(port: int) -> int:
    """A TCP port, or an error that names it."""
    if not 1 <= port <= 65535:
        raise InvalidArgumentException(f"{port!r} is not a TCP port, 1 to 65535")
    return port
