"""Judging a request before anything is made for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tupper.core.backend import Mount
from tupper.core.errors import InvalidArgument, NotFound
from tupper.core.ids import is_sandbox_id
from tupper.core.sandbox import CreateRequest
from tupper.core.settings import Settings
from tupper.core.volume import VolumeMount

MIN_MEMORY_MIB = 64
MIN_DISK_MIB = 16
MIN_PIDS = 16
MIN_CPUS = 0.05
_MAX_METADATA = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST = re.compile(r"(?:[A-Za-z0-9._:\[\]-]|\$\{PORT\}){0,255}")
_VARIABLE = re.compile(r"[^=\0]+")
_RESERVED = ("/proc", "/sys", "/dev", "/run/tupper")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a sandbox, decided."""

    cpus: float
    memory_mib: int
    disk_mib: int
    pids: int


def decide_limits(request: CreateRequest, settings: Settings) -> Limits:
    """What the request says, or else the settings.

    Raises:
        InvalidArgument: a limit is too small to run anything, with the least that works.
    """
    limits = Limits(
        request.cpus if request.cpus is not None else settings.cpus,
        request.memory_mib if request.memory_mib is not None else settings.memory_mib,
        request.disk_mib if request.disk_mib is not None else settings.disk_mib,
        request.pids if request.pids is not None else settings.pids,
    )
    for name, value, least, unit in (
        ("cpus", limits.cpus, MIN_CPUS, ""),
        ("memory", limits.memory_mib, MIN_MEMORY_MIB, " MiB"),
        ("disk", limits.disk_mib, MIN_DISK_MIB, " MiB"),
        ("pids", limits.pids, MIN_PIDS, ""),
    ):
        if value < least:
            raise InvalidArgument(
                f"{name}={value:g}{unit} is too little for a sandbox",
                hint=f"the least is {least:g}{unit}",
            )
    return limits


def check_request(
    request: CreateRequest, settings: Settings, own: Collection[Path]
) -> CreateRequest:
    """Refuse what cannot work; returns the request with the host paths of mounts resolved.

    Args:
        request: what somebody asks for.
        settings: of the engine.
        own: directories of tupper's, which no guest may see: with the store, the sockets, the
            key file, or a cached disk that the host mounts later, it could take over.

    Raises:
        InvalidArgument: a value cannot be used.
        NotFound: a mount's host directory does not exist.
    """
    check_timeout(request.timeout_s, settings)
    if request.idle_timeout_s is not None and request.idle_timeout_s <= 0:
        raise InvalidArgument(f"idle timeout must be above 0 s, not {request.idle_timeout_s:g}")
    check_name(request.name)
    _check_metadata(request.metadata)
    for name in request.env:
        if not _VARIABLE.fullmatch(name):
            raise InvalidArgument(f"{name!r} cannot be the name of an environment variable")
    if request.workdir and not request.workdir.startswith(("/", "~")):
        raise InvalidArgument(f"workdir {request.workdir!r} must be absolute")
    for port in (*(p.guest for p in request.ports), *request.allow_host_ports):
        check_port(port)
    for port in (p.host for p in request.ports):
        check_port(port, least=0)
    _check_ingress(request)
    return replace(request, mounts=_check_mounts(request.mounts, own))


def _check_ingress(request: CreateRequest) -> None:
    for port in request.ingress.https_ports:
        check_port(port)
    if not _HOST.fullmatch(request.ingress.request_host):
        raise InvalidArgument(
            f"{request.ingress.request_host[:80]!r} cannot be the name of a host",
            hint="a name or address, perhaps with ':' and a port or '${PORT}'",
        )
    if request.ports and not request.ingress.is_public:
        raise InvalidArgument(
            "ports published on the host ask for no token, so the sandbox's cannot be private",
            hint="leave the ports out: the server's own address leads to them with the token",
        )


def check_timeout(timeout_s: float | None, settings: Settings) -> None:
    """Refuse a life that is no life, or longer than allowed."""
    if timeout_s is None:
        return
    if timeout_s <= 0:
        raise InvalidArgument(f"timeout must be above 0 s, not {timeout_s:g}")
    if timeout_s > settings.max_timeout_s:
        raise InvalidArgument(
            f"timeout {timeout_s:g} s is above the most allowed, {settings.max_timeout_s:g} s"
        )


def check_name(name: str) -> None:
    """Refuse names that could be taken for something else."""
    if not name:
        return
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name[:80]!r} cannot be a sandbox's name",
            hint="up to 63 letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    if is_sandbox_id(name):
        raise InvalidArgument(f"the name {name!r} has the form of an id")


def check_port(port: int, *, least: int = 1) -> None:
    """Refuse what is no TCP port."""
    if not least <= port <= 65535:
        raise InvalidArgument(f"{port} is not a port between {least} and 65535")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    size = sum(len(key) + len(value) for key, value in metadata.items())
    if size > _MAX_METADATA:
        raise InvalidArgument(f"metadata has {size} characters, the most is {_MAX_METADATA}")


def check_volumes(request: CreateRequest) -> tuple[VolumeMount, ...]:
    """Where volumes are mounted, judged like mounts; none may be where another mount is."""
    taken = {mount.guest_path for mount in request.mounts}
    checked: list[VolumeMount] = []
    for volume in request.volumes:
        path = _guest_path(volume.path)
        if path in taken:
            raise InvalidArgument(f"two mounts at {path}")
        taken.add(path)
        checked.append(replace(volume, path=path))
    return tuple(checked)


def _check_mounts(mounts: tuple[Mount, ...], own: Collection[Path]) -> tuple[Mount, ...]:
    checked: list[Mount] = []
    taken: set[str] = set()
    for mount in mounts:
        guest = _guest_path(mount.guest_path)
        if guest in taken:
            raise InvalidArgument(f"two mounts at {guest}")
        taken.add(guest)
        checked.append(Mount(_host_path(mount.host_path, own), guest, mount.read_only))
    return tuple(checked)


def _guest_path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise InvalidArgument(f"the guest path {text!r} of a mount must be absolute, without '..'")
    guest = "/" + str(path).lstrip("/")
    if guest == "/" or any(PurePosixPath(guest).is_relative_to(p) for p in _RESERVED):
        raise InvalidArgument(f"a mount cannot be at {guest}")
    return guest


def _host_path(path: Path, own: Collection[Path]) -> Path:
    """Resolve links first: what counts is where a path leads."""
    if not path.is_absolute():
        raise InvalidArgument(f"the host path {str(path)!r} of a mount must be absolute")
    try:
        real = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"the host directory {path} of a mount does not exist") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidArgument(f"the host directory {path} of a mount cannot be used") from error
    if not real.is_dir():
        raise InvalidArgument(f"the host path {path} of a mount is not a directory")
    refused = [Path("/proc"), Path("/sys"), Path("/dev")]
    ours = [place.resolve() for place in own]
    inside = any(real.is_relative_to(place) for place in (*refused, *ours))
    if real == Path("/") or inside or any(place.is_relative_to(real) for place in ours):
        raise InvalidArgument(
            f"the host directory {path} cannot be mounted",
            hint="not /, /proc, /sys, /dev, nor a directory of tupper's own or one above it",
        )
    return real
