"""From a reference to checked documents and blobs on this machine's disk.

Four kinds of source end in one shape, :class:`Fetched`: a registry and the local Docker through
skopeo, ``docker save`` archives through skopeo too, OCI layouts read in place, OCI archives
taken apart into the staging directory first. Of an index only the chosen entry's blobs are ever
asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tupper.core.backend import ImageConfig
from tupper.core.errors import (
    ImageError,
    ImageNotFound,
    ImagePullFailed,
    ImageRejected,
    InvalidArgument,
)
from tupper.images.blobs import DAMAGED, decompressed
from tupper.images.child import extract_layout
from tupper.images.manifest import (
    DOCUMENT_MAX,
    Descriptor,
    Index,
    Manifest,
    Platform,
    choose,
    no_platform,
    parse_config,
    parse_document,
)
from tupper.images.records import Progress, ProgressEvent
from tupper.images.skopeo import Skopeo
from tupper.images.tarstream import TarStream
from tupper.images.unpack import Layer
from tupper.protocol.reference import LocalPath, RegistryName, Transport

_NESTING_MAX = 4
_WATCH_EVERY_S = 0.3
_UNREADABLE: tuple[type[Exception], ...] = (ImageError, *DAMAGED)
_REF_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image whose blobs are on disk; the layers' contents are checked while unpacking.

    Args:
        digest: of its configuration, which names all layers: the image's identity.
        config: what it says about processes.
        layers: lowest first.
        manifests: digests of the manifest and of the indexes above it.
    """

    digest: str
    config: ImageConfig
    layers: tuple[Layer, ...]
    manifests: tuple[str, ...]


BlobPath = Callable[[str], Path]
ReadDocument = Callable[[str], Awaitable[bytes]]


async def fetch(
    source: RegistryName | LocalPath,
    wanted: Platform,
    stage: Path,
    progress: Progress,
) -> Fetched:
    """Bring an image's documents and blobs to this machine.

    Args:
        source: where from; a :class:`LocalPath` has been told its transport by :func:`sniff`.
        wanted: for which platform.
        stage: an empty directory on the store's disk.
        progress: told what happens.

    Raises:
        ImageNotFound, ImagePullFailed, ImageRejected, PlatformNotFound.
    """
    if isinstance(source, RegistryName):
        return await _fetch_registry(source, wanted, stage, progress)
    match source.transport:
        case Transport.OCI:
            return await _read_layout(Path(source.path), source.name, wanted)
        case Transport.OCI_ARCHIVE:
            progress(ProgressEvent(f"reading {Path(source.path).name}"))
            await extract_layout(Path(source.path), stage / "layout")
            return await _read_layout(stage / "layout", source.name, wanted)
        case _:
            return await _fetch_through_skopeo(source, wanted, stage, progress)


async def _fetch_registry(
    source: RegistryName, wanted: Platform, stage: Path, progress: Progress
) -> Fetched:
    skopeo = Skopeo(tls_verify=not source.is_loopback)
    name = source.canonical
    first = source.pinned(source.digest) if source.digest else name
    progress(ProgressEvent(f"resolving {name}"))
    raw = await skopeo.inspect_raw(f"docker://{first}", name)
    if source.digest and _digest(raw) != source.digest:
        raise ImageRejected(f"the registry gave a manifest that is not {source.digest}")

    async def read(digest: str) -> bytes:
        return await skopeo.inspect_raw(f"docker://{source.pinned(digest)}", name)

    manifest, chain = await _descend(raw, wanted, name, read)
    target = stage / "blobs"
    total = sum(max(layer.size, 0) for layer in manifest.layers)
    async with _watched(target, total, f"pulling {name}", progress):
        await skopeo.copy(f"docker://{source.pinned(chain[-1])}", target, name)
    return _assemble(manifest, chain, wanted, name, _flat(target))


async def _fetch_through_skopeo(
    source: LocalPath, wanted: Platform, stage: Path, progress: Progress
) -> Fetched:
    """``docker-archive:`` and ``docker-daemon:``; both hold one platform and plain layers."""
    transport = source.transport or Transport.DOCKER_ARCHIVE
    text = f"{transport}:{source.path}"
    if transport is Transport.DOCKER_ARCHIVE and source.name:
        text += f":{source.name}"
    elif transport is Transport.DOCKER_DAEMON and ":" not in source.path.rpartition("/")[2]:
        text += ":latest"
    target = stage / "blobs"
    name = source.path if transport is Transport.DOCKER_DAEMON else Path(source.path).name
    async with _watched(target, 0, f"reading {name}", progress):
        await Skopeo().copy(text, target, name)
    raw = await asyncio.to_thread((target / "manifest.json").read_bytes)
    manifest = parse_document(raw)
    if isinstance(manifest, Index):
        raise ImageRejected(f"{name} holds an index where a manifest was expected")
    return _assemble(manifest, (_digest(raw),), wanted, name, _flat(target))


async def _read_layout(directory: Path, tag: str, wanted: Platform) -> Fetched:
    """Read an OCI layout where it lies."""
    blobs = directory / "blobs" / "sha256"

    def path(digest: str) -> Path:
        return blobs / digest.removeprefix("sha256:")

    async def read(digest: str) -> bytes:
        return await asyncio.to_thread(read_document, path(digest), digest)

    name = directory.name if not tag else f"{directory.name}:{tag}"
    try:
        raw = await asyncio.to_thread(_read_small, directory / "index.json")
    except FileNotFoundError:
        raise ImageNotFound(f"{directory.name} is not an OCI layout: no index.json") from None
    index = parse_document(raw)
    if not isinstance(index, Index) or not index.manifests:
        raise ImageRejected(f"{name}: index.json lists no manifests")
    chosen = _pick(index, tag, wanted, name)
    manifest, chain = await _descend(await read(chosen.digest), wanted, name, read)
    return _assemble(manifest, chain, wanted, name, path)


def _pick(index: Index, tag: str, wanted: Platform, name: str) -> Descriptor:
    """The entry of a layout's ``index.json`` that a tag names; without one, the only image."""
    entries = index.manifests
    if tag:
        entries = tuple(e for e in entries if (e.annotations or {}).get(_REF_NAME) == tag)
        if not entries:
            tags = sorted(
                filter(None, ((e.annotations or {}).get(_REF_NAME) for e in index.manifests))
            )
            raise ImageNotFound(f"no image {name}; tags there: {', '.join(tags) or 'none'}")
    if len(entries) == 1:
        return entries[0]
    tags = sorted({(e.annotations or {}).get(_REF_NAME) or "" for e in entries} - {""})
    if len(tags) > 1:
        raise InvalidArgument(
            f"{name} holds several images, add one of the tags: {', '.join(tags)}"
        )
    return choose(Index(entries), wanted, name)


async def _descend(
    raw: bytes, wanted: Platform, name: str, read: ReadDocument
) -> tuple[Manifest, tuple[str, ...]]:
    """Go from an index (of indexes) to the one manifest; also the digests on the way."""
    chain = [_digest(raw)]
    for _ in range(_NESTING_MAX):
        document = parse_document(raw)
        if isinstance(document, Manifest):
            return document, tuple(chain)
        chosen = choose(document, wanted, name)
        raw = await read(chosen.digest)
        if _digest(raw) != chosen.digest:
            raise ImageRejected(f"{name}: the manifest is not {chosen.digest}")
        chain.append(chosen.digest)
    raise ImageRejected(f"{name}: indexes nested more than {_NESTING_MAX} deep")


def _assemble(
    manifest: Manifest, chain: tuple[str, ...], wanted: Platform, name: str, path: BlobPath
) -> Fetched:
    """Read the configuration and match its diff_ids with the manifest's layers."""
    raw = read_document(path(manifest.config.digest), manifest.config.digest)
    config, diff_ids, built_for = parse_config(raw)
    if built_for is not None and not wanted.runs(built_for):
        raise no_platform(name, wanted, [built_for])
    if len(diff_ids) != len(manifest.layers):
        raise ImageRejected(
            f"{name}: {len(manifest.layers)} layers, but its configuration names {len(diff_ids)}"
        )
    layers: list[Layer] = []
    for descriptor, diff_id in zip(manifest.layers, diff_ids, strict=True):
        file = path(descriptor.digest)
        _check_regular(file, descriptor.digest)
        layers.append(Layer(file, descriptor.digest, descriptor.size, diff_id))
    return Fetched(manifest.config.digest, config, tuple(layers), chain)


def read_document(path: Path, digest: str) -> bytes:
    """A manifest or configuration from disk, checked against its digest."""
    _check_regular(path, digest)
    data = _read_small(path)
    if _digest(data) != digest:
        raise ImageRejected(f"blob {digest} has the digest {_digest(data)}")
    return data


def _read_small(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(DOCUMENT_MAX + 1)
    if len(data) > DOCUMENT_MAX:
        raise ImageRejected(f"{path.name}: larger than {DOCUMENT_MAX} bytes")
    return data


def _check_regular(path: Path, digest: str) -> None:
    """A layout from elsewhere may hold a pipe in place of a blob."""
    try:
        mode = path.stat().st_mode
    except OSError:
        raise ImagePullFailed(f"blob {digest} is missing") from None
    if not stat.S_ISREG(mode):
        raise ImageRejected(f"blob {digest} is not a file")


def _flat(directory: Path) -> BlobPath:
    """How skopeo's ``dir:`` names blobs."""
    return lambda digest: directory / digest.removeprefix("sha256:")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextlib.asynccontextmanager
async def _watched(
    directory: Path, total: int, message: str, progress: Progress
) -> AsyncGenerator[None, None]:
    """Report how much lies in a directory while somebody else fills it.

    skopeo prints no byte counts unless it writes to a terminal.
    """

    async def watch() -> None:
        while True:
            done = _bytes_in(directory)
            progress(ProgressEvent(message, min(done, total) if total else done, total or None))
            await asyncio.sleep(_WATCH_EVERY_S)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _bytes_in(directory: Path) -> int:
    total = 0
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def sniff(source: LocalPath) -> LocalPath:
    """Find out what a path holds, and make it absolute.

    Raises:
        ImageNotFound: there is nothing.
        InvalidArgument: it is no image.
    """
    if source.transport is Transport.DOCKER_DAEMON:
        return source
    path = Path(source.path).expanduser().absolute()
    if not path.exists():
        raise ImageNotFound(f"there is no file or directory {source.path}")
    transport: Transport | None = source.transport
    if path.is_dir() != (transport is Transport.OCI) and transport is not None:
        kind = "a directory" if transport is Transport.OCI else "a file"
        raise InvalidArgument(f"{source.path} is not {kind}, as {transport}: wants it")
    if transport is None:
        transport = Transport.OCI if path.is_dir() else _sniff_archive(path, source.path)
    if ":" in str(path) and transport is Transport.DOCKER_ARCHIVE:
        raise InvalidArgument(f"{source.path}: skopeo takes no path with a colon")
    return LocalPath(transport, str(path), source.name)


def _sniff_archive(path: Path, shown: str) -> Transport:
    """Docker's archives since 25 are OCI layouts too, and are read as such."""
    names: set[bytes] = set()
    try:
        with path.open("rb", buffering=0) as file:
            for entry in TarStream(decompressed(file)):
                names.add(entry.name.removeprefix(b"./"))
                if {b"index.json", b"oci-layout"} <= names:
                    return Transport.OCI_ARCHIVE
    except _UNREADABLE as error:
        raise ImageRejected(f"{shown} is not a readable image archive: {error}") from error
    if b"manifest.json" in names:
        return Transport.DOCKER_ARCHIVE
    raise InvalidArgument(f"{shown} is neither an OCI archive nor one of `docker save`")


def stamp(source: RegistryName | LocalPath) -> str:
    """Something that changes when a local source changes; empty for remote ones."""
    if isinstance(source, RegistryName) or source.transport is Transport.DOCKER_DAEMON:
        return ""
    path = Path(source.path)
    if source.transport is Transport.OCI:
        path /= "index.json"
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
