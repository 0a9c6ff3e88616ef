"""What manifests, indexes and configurations of images say. Pure parsing.

Everything here comes from a stranger: each field is checked before it is used, and what is wrong
is :class:`~tupper.core.errors.ImageRejected`. The kind of a document is told by its fields, not by
its media type, which some tools get wrong.

Source: OCI image specification 1.1 (manifest, image index, configuration), Docker image manifest
version 2 schema 2.
"""

from __future__ import annotations

import json
import platform as host_platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tupper.core.backend import ImageConfig
from tupper.core.errors import ImageRejected, InvalidArgument, PlatformNotFound
from tupper.protocol.reference import is_digest

DOCUMENT_MAX = 8 * 1024 * 1024
_ARCHITECTURES = {
    "x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm",
    "i686": "386", "riscv64": "riscv64", "ppc64le": "ppc64le", "s390x": "s390x",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and an architecture, in Go's words."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        """``linux/arm64/v8``."""
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)

    def runs(self, other: Platform) -> bool:
        """Whether what is built for ``other`` is what we look for."""
        same = (self.os, self.architecture) == (other.os, other.architecture)
        return same and (not self.variant or self.variant == other.variant)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A pointer to a blob: its digest and its size in bytes (negative if not said)."""

    digest: str
    size: int
    platform: Platform | None = None
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image for one platform."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """A list of images, each for a platform."""

    manifests: tuple[Descriptor, ...]


def parse_platform(text: str | None) -> Platform:
    """``linux/arm64[/v8]``, or ``arm64``; this machine's if None.

    Raises:
        InvalidArgument: not such a text.
    """
    if text is None:
        machine = host_platform.machine().lower()
        return Platform("linux", _ARCHITECTURES.get(machine, machine))
    parts = text.lower().split("/")
    if len(parts) == 1:
        parts = ["linux", *parts]
    if len(parts) > 3 or not all(part.isalnum() for part in parts):
        raise InvalidArgument(f"not a platform: {text!r}, write linux/amd64 or linux/arm64")
    architecture = _ARCHITECTURES.get(parts[1], parts[1])
    return Platform(parts[0], architecture, parts[2] if len(parts) == 3 else "")


def parse_document(data: bytes) -> Manifest | Index:
    """Read a manifest or an index.

    Raises:
        ImageRejected: it is neither.
    """
    body = _parse_object(data, "manifest")
    if body.get("schemaVersion") == 1:
        raise ImageRejected("the image has a manifest of Docker's schema 1, retired in 2019")
    if isinstance(listed := body.get("manifests"), list):
        return Index(tuple(_parse_descriptor(item) for item in cast("list[object]", listed)))
    if isinstance(layers := body.get("layers"), list):
        return Manifest(
            _parse_descriptor(body.get("config")),
            tuple(_parse_descriptor(item) for item in cast("list[object]", layers)),
        )
    raise ImageRejected("the manifest has neither layers nor manifests")


def choose(index: Index, wanted: Platform, name: str) -> Descriptor:
    """Pick the entry for a platform.

    Entries for ``unknown/unknown`` are attestations. One that names no platform may be an index
    of its own, or an image for anything, and is taken when nothing better is there.

    Raises:
        PlatformNotFound: naming the platforms that there are.
    """
    exact = [item for item in index.manifests if item.platform and wanted.runs(item.platform)]
    if exact:
        # Of several variants the plain one, else the first: what every arm64 or amd64 can run.
        plain = [item for item in exact if item.platform and item.platform.variant in {"", "v8"}]
        return (plain or exact)[0]
    silent = [item for item in index.manifests if item.platform is None]
    if silent:
        return silent[0]
    raise no_platform(name, wanted, [item.platform for item in index.manifests if item.platform])


def no_platform(name: str, wanted: Platform, there: Sequence[Platform]) -> PlatformNotFound:
    """The error that names what there is."""
    known = sorted({str(item) for item in there if item.os != "unknown"})
    return PlatformNotFound(
        f"image {name} has nothing for {wanted}; available: {', '.join(known) or 'none'}",
        hint="emulation is not used: choose an image that is built for this machine",
    )


def parse_config(data: bytes) -> tuple[ImageConfig, tuple[str, ...], Platform | None]:
    """Read an image's configuration: for processes, the layers' diff_ids, and the platform.

    Raises:
        ImageRejected: a field is not what it must be.
    """
    body = _parse_object(data, "configuration")
    rootfs = _as_object(body.get("rootfs") or {}, "rootfs")
    diff_ids = _as_texts(rootfs.get("diff_ids"), "rootfs.diff_ids")
    if not all(is_digest(item) for item in diff_ids):
        raise ImageRejected("the image's configuration has a diff_id that is no sha256 digest")
    run = _as_object(body.get("config") or {}, "config")
    config = ImageConfig(
        env=_parse_env(_as_texts(run.get("Env"), "Env")),
        workdir=_as_text(run.get("WorkingDir"), "WorkingDir"),
        user=_as_text(run.get("User"), "User"),
        entrypoint=_as_texts(run.get("Entrypoint"), "Entrypoint"),
        cmd=_as_texts(run.get("Cmd"), "Cmd"),
        labels=_parse_labels(run.get("Labels")),
        exposed_ports=_parse_ports(run.get("ExposedPorts")),
    )
    return config, diff_ids, _parse_config_platform(body)


def _parse_config_platform(body: Mapping[str, object]) -> Platform | None:
    architecture = _as_text(body.get("architecture"), "architecture")
    if not architecture:
        return None
    system = _as_text(body.get("os"), "os") or "linux"
    return Platform(system, architecture, _as_text(body.get("variant"), "variant"))


def _parse_descriptor(value: object) -> Descriptor:
    body = _as_object(value, "descriptor")
    digest = _as_text(body.get("digest"), "digest")
    if not is_digest(digest):
        raise ImageRejected(f"the manifest has a digest that is not sha256: {digest[:80]!r}")
    size = body.get("size", -1)
    if not isinstance(size, int) or isinstance(size, bool):
        raise ImageRejected("the manifest has a size that is no number")
    notes = body.get("annotations")
    return Descriptor(
        digest, size, _parse_index_platform(body.get("platform")), _parse_labels(notes)
    )


def _parse_index_platform(value: object) -> Platform | None:
    if value is None:
        return None
    body = _as_object(value, "platform")
    fields = (_as_text(body.get(key), key) for key in ("os", "architecture", "variant"))
    return Platform(*fields)


def _parse_env(items: Sequence[str]) -> dict[str, str]:
    pairs = (item.partition("=") for item in items)
    return {key: value for key, _, value in pairs if key}


def _parse_labels(value: object) -> dict[str, str]:
    body = _as_object(value or {}, "Labels")
    return {key: _as_text(item, "Labels") for key, item in body.items()}


def _parse_ports(value: object) -> tuple[int, ...]:
    """``{"8080/tcp": {}}``; UDP is left out, tunnels carry TCP."""
    ports: set[int] = set()
    for key in _as_object(value or {}, "ExposedPorts"):
        number, _, protocol = key.partition("/")
        if protocol in {"", "tcp"} and number.isdigit() and 0 < int(number) < 65536:
            ports.add(int(number))
    return tuple(sorted(ports))


def _parse_object(data: bytes, what: str) -> Mapping[str, object]:
    if len(data) > DOCUMENT_MAX:
        raise ImageRejected(f"a {what} of {len(data)} bytes")
    try:
        return _as_object(json.loads(data), what)
    except (ValueError, RecursionError) as error:
        raise ImageRejected(f"the image's {what} is not JSON") from error


def _as_object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ImageRejected(f"the image's {what} is not a JSON object")
    return cast("dict[str, object]", value)


def _as_text(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise ImageRejected(f"the image's {what} is not a text")
    return value


def _as_texts(value: object, what: str) -> tuple[str, ...]:
    """A list of texts; a single text (some builders write ``"Cmd": "x"``) is a list of one."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise ImageRejected(f"the image's {what} is not a list")
    return tuple(_as_text(item, what) for item in cast("list[object]", value))
