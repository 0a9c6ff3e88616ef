"""Names of images: what a user may write, and what it means.

A reference is one of

* a name at a registry, with Docker's short forms: ``alpine``, ``user/app:1``,
  ``localhost:5000/app@sha256:…``;
* a place on this machine: ``oci:DIR[:TAG]``, ``oci-archive:FILE[:TAG]``,
  ``docker-archive:FILE[:NAME]``, or ``docker-daemon:NAME`` for the local Docker;
* a digest of an image that is already in the store: ``sha256:…``.

A bare path (``./x``, ``/x``, ``~/x``, or anything that ends in ``.tar``) is a :class:`LocalPath`
whose kind only a look at the file can tell.

Source: OCI distribution specification 1.1 ("Pulling manifests"), the ``reference`` grammar of
distribution/reference 0.6, containers-transports(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tupper.core.errors import InvalidArgument

DEFAULT_REGISTRY = "docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
_NAME_MAX = 255


class Transport(StrEnum):
    """Where an image comes from."""

    REGISTRY = "docker"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    DOCKER_DAEMON = "docker-daemon"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class RegistryName:
    """An image at a registry.

    Args:
        host: the registry, with its port if one was given; ``docker.io`` for short names.
        repository: such as ``library/alpine``.
        tag: empty when only a digest was given.
        digest: ``sha256:…`` or empty.
    """

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def canonical(self) -> str:
        """The full name: two spellings of one image give the same text."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.repository}{tag}{digest}"

    def pinned(self, digest: str) -> str:
        """The name of one manifest in the same repository."""
        return f"{self.host}/{self.repository}@{digest}"

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is this machine, so that plain HTTP may be used."""
        host = self.host.rsplit(":", 1)[0] if not self.host.endswith("]") else self.host
        return (
            host in {"localhost", "[::1]"} or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
        )


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A file or directory on this machine, or an image of the local Docker.

    Args:
        transport: None for a bare path.
        path: as written; for ``docker-daemon`` the image's name.
        name: the tag (or, in a ``docker save`` archive, the name) that picks one of several.
    """

    transport: Transport | None
    path: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """An image that is named by its digest and must be in the store already."""

    digest: str


Reference = RegistryName | LocalPath | Stored


def is_digest(text: str) -> bool:
    """Whether the text is ``sha256:`` and 64 lower-case hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def parse_reference(text: str) -> Reference:
    """Read what a user wrote.

    Raises:
        InvalidArgument: it is none of the forms.
    """
    if not text or text != text.strip() or any(ord(char) < 33 for char in text):
        raise InvalidArgument(f"not an image reference: {text!r}")
    if is_digest(text):
        return Stored(text)
    scheme, colon, rest = text.partition(":")
    if colon and scheme in {"oci", "oci-archive", "docker-archive", "docker-daemon"}:
        return _parse_local(Transport(scheme), rest, text)
    if text.startswith("docker://"):
        return parse_registry_name(text.removeprefix("docker://"))
    if _looks_like_path(text):
        return LocalPath(None, text)
    return parse_registry_name(text)


def names_host_files(text: str) -> bool:
    """Whether a reference is to files of this machine, or to its Docker, and not to a registry.

    What is no reference at all is none to files.
    """
    try:
        return isinstance(parse_reference(text), LocalPath)
    except InvalidArgument:
        return False


def _looks_like_path(text: str) -> bool:
    return text in {".", ".."} or text.startswith(("/", "./", "../", "~/")) or text.endswith(".tar")


def _parse_local(transport: Transport, rest: str, text: str) -> LocalPath:
    """``PATH[:NAME]``; a path may hold no colon, as in containers-transports(5)."""
    if transport is Transport.DOCKER_DAEMON:
        if not rest:
            raise InvalidArgument(f"{text!r} names no image of the local Docker")
        return LocalPath(transport, rest)
    path, _, name = rest.partition(":")
    if not path:
        raise InvalidArgument(f"{text!r} names no path")
    return LocalPath(transport, path, name)


def parse_registry_name(text: str) -> RegistryName:
    """Read ``[HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST]`` with Docker's defaults.

    Raises:
        InvalidArgument: naming the part that is wrong.
    """
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise InvalidArgument(
            f"image {text!r}: the digest must be sha256: and 64 hexadecimal digits"
        )
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise InvalidArgument(f"image {text!r}: {tag!r} is not a tag")
    host, repository = _split_host(f"{head}{slash}{last}")
    if not _HOST.fullmatch(host):
        raise InvalidArgument(f"image {text!r}: {host!r} is not a registry")
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _NAME_MAX:
        hint = "repository names are lower-case" if repository.lower() != repository else None
        raise InvalidArgument(f"image {text!r}: {repository!r} is not a repository", hint=hint)
    return RegistryName(host, repository, tag or ("" if digest else "latest"), digest)


def _split_host(name: str) -> tuple[str, str]:
    """The first component is a host if it looks like one, as Docker decides it."""
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first.lower() != first
    if not slash or not is_host:
        return DEFAULT_REGISTRY, name if slash else f"library/{name}"
    if first in {"index.docker.io", "registry-1.docker.io"}:
        first = DEFAULT_REGISTRY
    if first == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"library/{rest}"
    return first, rest
