"""The images of one tupper: get them, find them, remove them.

:class:`Images` is safe to use from several tasks and processes at once: whoever wants the same
image waits for the one that pulls it. After a pull nothing touches the network again.

**Locks**, always taken in this order: the reference's (one pull per reference), the image's (one
unpack per image). ``remove`` and ``prune`` take an image's lock and its *use* lock exclusively,
and pass over what they cannot have: see :meth:`Images.hold`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Collection, Generator
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import Conflict, ImageNotFound, InvalidArgument, OutOfDisk
from tupper.images.child import unpack_layers
from tupper.images.fetch import Fetched, fetch, sniff, stamp
from tupper.images.layers import Limits
from tupper.images.locks import held, locked
from tupper.images.manifest import Platform, parse_platform
from tupper.images.records import ImageInfo, Progress, ProgressEvent, Pruned
from tupper.images.store import Reference, Store, Stored
from tupper.protocol.naming import DEFAULT_TAG
from tupper.protocol.reference import (
    LocalPath,
    RegistryName,
    Transport,
    is_digest,
    parse_reference,
)
from tupper.protocol.reference import Stored as StoredName

_LOCK_TIMEOUT_S = 3600.0
_FILE_TRANSPORTS = [Transport.OCI, Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE]
TEMPLATE_PREFIX = "template:"
ANY_PLATFORM = "any"  # the platform of trees that were built here


class Images:
    """All images below one data directory.

    Args:
        data_dir: the tupper's data; images are in ``images`` below it.
        cache_dir: for what can be had again.
        id_map: ``unshare`` where the engine is an ordinary user: images are then unpacked in a
            user namespace with the user's subordinate ids. None for root.
        limits: how much an image may be.
    """

    def __init__(
        self,
        data_dir: Path,
        cache_dir: Path,
        *,
        id_map: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        if id_map not in {None, "unshare"}:
            raise InvalidArgument(f"id_map is {id_map!r}, it must be 'unshare' or None")
        self.data_dir = data_dir
        self.cache_dir = cache_dir
        self.store = Store(data_dir / "images", user_namespace=id_map is not None)
        self._limits = limits or Limits()

    async def ensure(
        self,
        reference: str,
        *,
        progress: Progress | None = None,
        platform: str | None = None,
        refresh: bool = False,
    ) -> Rootfs:
        """The root filesystem of an image, pulled if it is not stored.

        A name at a registry that is stored is not looked up again: what it meant at its first
        use stays, until ``refresh``. Files and layouts are looked at each time.

        Args:
            reference: any form of :mod:`tupper.protocol.reference`.
            progress: told what happens, from the event loop's thread.
            platform: such as ``linux/arm64``; this machine's if None.
            refresh: ask the source again although the name is stored.

        Raises:
            InvalidArgument, ImageNotFound, ImagePullFailed, ImageRejected, PlatformNotFound,
            OutOfDisk, ProgramNotFound (skopeo).
        """
        self.store.prepare()
        parsed = parse_reference(reference)
        if isinstance(parsed, StoredName):
            found = self._by_digest(parsed.digest)
            if found is None:
                raise ImageNotFound(f"no image {reference} is stored", hint="pull it by its name")
            return self._used(found)
        if isinstance(parsed, LocalPath):
            parsed = await asyncio.to_thread(sniff, parsed)
        wanted = parse_platform(platform)
        name = _canonical(parsed)
        async with self.only_one(f"pull {name} {wanted}"):
            mark = stamp(parsed)
            found = self.store.find(name, str(wanted), mark)
            if found is not None and not refresh:
                return self._used(found)
            rootfs = await self._pull(parsed, wanted, progress or _ignore)
            self.store.add_reference(Reference(name, str(wanted), rootfs.digest, mark))
            return rootfs

    async def lookup(self, reference_or_digest: str) -> Rootfs | None:
        """The root filesystem if it is stored. Touches no network."""
        found = self._find(reference_or_digest)
        return None if found is None else found.rootfs

    async def list(self) -> list[ImageInfo]:
        """All images, the one last used first. Templates' trees are among them."""
        names: dict[str, set[str]] = {}
        for reference in self.store.references():
            names.setdefault(reference.digest, set()).add(reference.name)
        infos = [
            ImageInfo(
                digest=stored.rootfs.digest,
                references=tuple(sorted(names.get(stored.rootfs.digest, ()))),
                size_bytes=stored.rootfs.size_bytes,
                created_at=stored.created_at,
                last_used=stored.last_used,
            )
            for stored in self.store.images()
        ]
        return sorted(infos, key=lambda info: -info.last_used)

    async def remove(self, reference_or_digest: str, *, in_use: Collection[str]) -> None:
        """Remove an image; by a name when it has several, only that name.

        Args:
            reference_or_digest: what to remove.
            in_use: digests that sandboxes use.

        Raises:
            ImageNotFound: it is not stored.
            Conflict: it is in use, or being used at this moment.
        """
        found = self._find(reference_or_digest)
        if found is None:
            raise ImageNotFound(f"no image {reference_or_digest} is stored")
        digest = found.rootfs.digest
        mine = [item for item in self.store.references() if item.digest == digest]
        if not is_digest(reference_or_digest):
            names = {name for name, _ in _possible_names(reference_or_digest)}
            named = [item for item in mine if item.name in names]
            if len(named) < len(mine):
                for item in named:
                    self.store.drop_reference(item)
                return
        if digest in in_use or not await self._discard(digest):
            raise Conflict(f"image {reference_or_digest} is in use", hint="end its sandboxes first")

    async def prune(self, *, in_use: Collection[str]) -> Pruned:
        """Remove every image that nothing uses, and what interrupted pulls left.

        Templates are not images in this sense: remove them by their name.
        """
        self.store.prepare()
        kept = {item.digest for item in self.store.references() if _is_template(item)}
        removed: list[str] = []
        freed = 0
        for stored in list(self.store.images()):
            digest = stored.rootfs.digest
            if digest in in_use or digest in kept:
                continue
            if await self._discard(digest):
                removed.append(digest)
                freed += stored.rootfs.size_bytes
        freed += await self.store.sweep()
        return Pruned(tuple(removed), freed)

    @contextlib.contextmanager
    def hold(self, digest: str) -> Generator[None, None, None]:
        """Keep an image from being removed, from ``ensure`` until it is in a sandbox's record.

        Raises:
            Conflict: it is being removed at this moment.
        """
        self.store.prepare()
        with held(self._use_lock(digest), shared=True) as mine:
            if not mine:
                raise Conflict(f"image {digest} is being removed", hint="try again")
            yield

    async def add_tree(
        self, digest: str, tree: Path, config: ImageConfig, reference: str, *, stamp: str = ""
    ) -> Rootfs:
        """Take a finished directory into the store, by renaming it.

        Args:
            digest: ``sha256:…`` of what it was made from.
            tree: a root filesystem on the store's disk; best from :meth:`staging`.
            config: what to say about processes.
            reference: a name for it.
            stamp: what it was made from, for :meth:`find_tree`.
        """
        self.store.prepare()
        async with self.only_one(f"image {digest}"), self.store.staging() as stage:
            await asyncio.to_thread(tree.rename, stage / "rootfs")
            size_bytes = await self.store.measure(stage / "rootfs")
            rootfs = await self.store.commit(stage, digest, config=config, size_bytes=size_bytes)
            self.store.add_reference(Reference(reference, ANY_PLATFORM, digest, stamp))
        return rootfs

    @contextlib.asynccontextmanager
    async def staging(self) -> AsyncGenerator[Path, None]:
        """A private directory on the store's disk for something to be built in; then removed."""
        self.store.prepare()
        async with self.store.staging() as path:
            yield path

    def find_tree(self, reference: str, *, stamp: str = "") -> Rootfs | None:
        """What :meth:`add_tree` stored under that name, if it was made from the same."""
        found = self.store.find(reference, ANY_PLATFORM, stamp)
        return None if found is None else self._used(found)

    async def _pull(
        self, source: RegistryName | LocalPath, wanted: Platform, progress: Progress
    ) -> Rootfs:
        self._check_disk()
        async with self.store.staging() as stage:
            fetched = await fetch(source, wanted, stage, progress)
            async with self.only_one(f"image {fetched.digest}"):
                found = self.store.read(fetched.digest)
                if found is not None:
                    return self._used(found)
                again = await self.store.restore_record(
                    fetched.digest, fetched.config, fetched.manifests
                )
                return again or await self._unpack(fetched, stage, progress)

    async def _unpack(self, fetched: Fetched, stage: Path, progress: Progress) -> Rootfs:
        total = sum(max(layer.size, 0) for layer in fetched.layers)
        target = stage / "rootfs"
        # Root inside must be able to look into "/"; the directory above keeps others out.
        target.mkdir(mode=0o755)
        summary = await unpack_layers(
            target,
            list(fetched.layers),
            prefix=self.store.prefix,
            limits=self._limits,
            on_bytes=lambda done: progress(ProgressEvent("unpacking", min(done, total), total)),
        )
        progress(ProgressEvent("storing", total, total))
        return await self.store.commit(
            stage,
            fetched.digest,
            config=fetched.config,
            size_bytes=summary.disk_bytes,
            manifests=fetched.manifests,
        )

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self.store.directory).free
        if free < self._limits.min_free_bytes:
            raise OutOfDisk(
                f"{free // 2**20} MiB of disk are free, "
                f"{self._limits.min_free_bytes // 2**20} MiB must stay free",
                hint="remove images that are not used: tupper image prune",
            )

    def _find(self, text: str) -> Stored | None:
        """By any of its names, or by a digest; whether a local source changed does not matter."""
        if is_digest(text):
            return self._by_digest(text)
        for name, platform in _possible_names(text):
            reference = self.store.reference(name, platform)
            if reference is not None:
                return self.store.read(reference.digest)
        return None

    def _by_digest(self, digest: str) -> Stored | None:
        """By the image's own digest, or that of a manifest that led to it."""
        found = self.store.read(digest)
        if found is not None:
            return found
        return next((item for item in self.store.images() if digest in item.manifests), None)

    def _used(self, stored: Stored) -> Rootfs:
        self.store.touch(stored.rootfs.digest)
        return stored.rootfs

    def _use_lock(self, digest: str) -> Path:
        return self.store.lock_path(f"use {digest}")

    async def _discard(self, digest: str) -> bool:
        """Remove an image unless somebody holds it or works on it."""
        with (
            held(self.store.lock_path(f"image {digest}")) as free,
            held(self._use_lock(digest)) as unused,
        ):
            if not (free and unused):
                return False
            await self.store.discard(digest)
            return True

    @contextlib.asynccontextmanager
    async def only_one(self, key: str) -> AsyncGenerator[None, None]:
        """Hold the lock that others take for the same key."""
        self.store.prepare()
        async with locked(self.store.lock_path(key), timeout_s=_LOCK_TIMEOUT_S):
            yield


def _ignore(_: ProgressEvent) -> None:
    pass


def _is_template(reference: Reference) -> bool:
    return reference.name.startswith(TEMPLATE_PREFIX)


def _canonical(source: RegistryName | LocalPath) -> str:
    if isinstance(source, RegistryName):
        return source.canonical
    name = f":{source.name}" if source.name else ""
    return f"{source.transport}:{source.path}{name}"


def _possible_names(text: str) -> list[tuple[str, str]]:
    """The (name, platform) pairs that a text may be stored under; looks at no file."""
    if text.startswith(TEMPLATE_PREFIX):
        return [(text, ANY_PLATFORM)]
    parsed = parse_reference(text)
    platform = str(parse_platform(None))
    if isinstance(parsed, StoredName):
        return []
    if isinstance(parsed, RegistryName) or parsed.transport is Transport.DOCKER_DAEMON:
        return [(_canonical(parsed), platform)]
    path = str(Path(parsed.path).expanduser().absolute())
    kinds = [parsed.transport] if parsed.transport else _FILE_TRANSPORTS
    return [(_canonical(LocalPath(kind, path, parsed.name)), platform) for kind in kinds]


def render_reference(name: str, tag: str = DEFAULT_TAG) -> str:
    """The name of a template's tree in the image store."""
    plain = f"{TEMPLATE_PREFIX}{name}"
    return plain if tag == DEFAULT_TAG else f"{plain}:{tag}"
