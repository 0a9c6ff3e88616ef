"""The directory that holds root filesystems, by content.

**Shape** of ``data/images``::

    roots/<hex>/rootfs/      one root filesystem, immutable
    roots/<hex>/image.json   its record; last-used is this file's modification time
    refs/<hash>.json         reference and platform → digest
    staging/<random>/        being made; its .lock is held by the process at work
    locks/<hash>.lock        see locks.py

Everything appears by renaming something finished and flushed to disk, and disappears by being
renamed into ``staging`` first. So a directory in ``roots`` is complete whatever was killed when,
and what lies in ``staging`` without a held lock is rubbish.

A lost ``image.json`` or reference is not a lost image: it is written again by the next ``ensure``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import InvalidArgument, StoreError
from tupper.core.log import event
from tupper.core.paths import make_private
from tupper.core.process import run
from tupper.core.userns import AS_ROOT
from tupper.images.locks import try_lock

_REMOVE_TIMEOUT_S = 600.0
_SYNC_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A root filesystem with its record.

    Args:
        rootfs: what the backends get.
        created_at, last_used: seconds since 1970.
        manifests: digests of manifests that led here.
    """

    rootfs: Rootfs
    created_at: float
    last_used: float
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A name for an image in the store.

    Args:
        name: canonical.
        platform: such as ``linux/amd64``.
        digest: of the image.
        stamp: what the source looked like, for files that may change; empty otherwise.
    """

    name: str
    platform: str
    digest: str
    stamp: str = ""


class Store:
    """The files of one image store.

    Args:
        directory: ``data/images``; made if missing.
        user_namespace: whether trees belong to the user's subordinate ids, so that only a process
            in a user namespace can remove them.
    """

    def __init__(self, directory: Path, *, user_namespace: bool) -> None:
        self.directory = directory
        self.prefix: tuple[str, ...] = AS_ROOT if user_namespace else ()

    def prepare(self) -> None:
        """Make the directories, private."""
        make_private(self.directory)
        for name in ("roots", "refs", "staging", "locks"):
            make_private(self.directory / name)

    def lock_path(self, key: str) -> Path:
        """The lock for one key."""
        return self.directory / "locks" / f"{_hash(key)}.lock"

    def root(self, digest: str) -> Path:
        """Where an image lies, or would lie."""
        algorithm, _, hexadecimal = digest.partition(":")
        if algorithm != "sha256" or len(hexadecimal) != 64 or not hexadecimal.isalnum():
            raise InvalidArgument(f"not a digest: {digest!r}")
        return self.directory / "roots" / hexadecimal

    def read(self, digest: str) -> Stored | None:
        """The image of that digest, or None if it is not there or its record is lost."""
        root = self.root(digest)
        record = root / "image.json"
        try:
            body = json.loads(record.read_bytes())
            last_used = record.stat().st_mtime
            config = _config_from_json(body["config"])
            rootfs = Rootfs(digest, root / "rootfs", config, int(body["size_bytes"]))
            stored = Stored(
                rootfs, float(body["created_at"]), last_used, tuple(body.get("manifests", ()))
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return stored if rootfs.path.is_dir() else None

    def images(self) -> Iterator[Stored]:
        """All images, in no order."""
        with contextlib.suppress(FileNotFoundError):
            for entry in sorted((self.directory / "roots").iterdir()):
                stored = self.read(f"sha256:{entry.name}")
                if stored is not None:
                    yield stored

    def touch(self, digest: str) -> None:
        """Note that an image is used now."""
        with contextlib.suppress(OSError):
            os.utime(self.root(digest) / "image.json")

    def reference(self, name: str, platform: str) -> Reference | None:
        """What is written under that name."""
        return self._read_reference(self._reference_path(name, platform))

    def find(self, name: str, platform: str, stamp: str = "") -> Stored | None:
        """The image that a reference stands for, if both are there."""
        found = self.reference(name, platform)
        if (
            found is None
            or found.stamp != stamp
            or (found.name, found.platform) != (name, platform)
        ):
            return None
        return self.read(found.digest)

    def references(self) -> Iterator[Reference]:
        """All references, in no order."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((self.directory / "refs").iterdir()):
                found = self._read_reference(path)
                if found is not None:
                    yield found

    def add_reference(self, reference: Reference) -> None:
        """Write a reference, instead of an older one of the same name and platform."""
        path = self._reference_path(reference.name, reference.platform)
        _write_durably(path, json.dumps(asdict(reference)).encode())

    def drop_references(self, digest: str) -> None:
        """Remove all references to an image."""
        for reference in list(self.references()):
            if reference.digest == digest:
                self.drop_reference(reference)

    def drop_reference(self, reference: Reference) -> None:
        """Remove one reference."""
        self._reference_path(reference.name, reference.platform).unlink(missing_ok=True)

    def _reference_path(self, name: str, platform: str) -> Path:
        return self.directory / "refs" / f"{_hash(f'{platform} {name}')}.json"

    def _read_reference(self, path: Path) -> Reference | None:
        try:
            return Reference(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @contextlib.asynccontextmanager
    async def staging(self) -> AsyncGenerator[Path, None]:
        """A private directory on the store's disk, removed afterwards with what is left in it."""
        name = secrets.token_hex(8)
        path = self.directory / "staging" / name
        lock = self.directory / "staging" / f"{name}.lock"
        fd = try_lock(lock)
        if fd is None:
            raise StoreError(f"staging directory {name} is taken")
        try:
            path.mkdir(mode=0o700)
            yield path
        finally:
            try:
                await self.destroy(path)
                lock.unlink(missing_ok=True)
            finally:
                os.close(fd)

    async def sweep(self) -> int:
        """Remove what interrupted work left in ``staging``; how many bytes that was."""
        freed = 0
        for path in list((self.directory / "staging").iterdir()):
            if path.suffix == ".lock":
                continue
            lock = path.with_name(f"{path.name}.lock")
            fd = try_lock(lock)
            if fd is None:
                continue
            try:
                freed += await self.measure(path)
                await self.destroy(path)
                lock.unlink(missing_ok=True)
            finally:
                os.close(fd)
        return freed

    async def measure(self, path: Path) -> int:
        """What a tree takes on disk, in bytes."""
        argv = [*self.prefix, "du", "--summarize", "--block-size=1", "--one-file-system", "--"]
        done = await run([*argv, str(path)], timeout_s=_REMOVE_TIMEOUT_S, check=False)
        first = done.text.split("\t", 1)[0]
        return int(first) if first.isdigit() else 0

    async def destroy(self, path: Path) -> None:
        """Remove a tree. ``rm`` works with descriptors and follows no links."""
        argv = [*self.prefix, "rm", "-rf", "--one-file-system", "--", str(path)]
        await run(argv, timeout_s=_REMOVE_TIMEOUT_S)

    async def commit(
        self,
        stage: Path,
        digest: str,
        *,
        config: ImageConfig,
        size_bytes: int,
        manifests: tuple[str, ...] = (),
    ) -> Rootfs:
        """Put ``stage/rootfs`` into its place, flushed to disk.

        If the place is taken, by another process that was faster or because only the record was
        lost, the tree there is kept and gets the record.
        """
        root = self.root(digest)
        item = stage / "item"
        item.mkdir(mode=0o700)
        (stage / "rootfs").rename(item / "rootfs")
        record = _render_record(config, size_bytes, manifests)
        _write_durably(item / "image.json", record)
        await run(["sync", "--file-system", str(item)], timeout_s=_SYNC_TIMEOUT_S)
        if (root / "rootfs").is_dir():
            _write_durably(root / "image.json", record)
        else:
            with contextlib.suppress(FileNotFoundError):
                root.rename(stage / "damaged")  # somebody took the tree out of it
            item.rename(root)
            _sync_directory(root.parent)
        event("image.stored", digest=digest, size_bytes=size_bytes)
        return Rootfs(digest, root / "rootfs", config, size_bytes)

    async def restore_record(
        self, digest: str, config: ImageConfig, manifests: tuple[str, ...]
    ) -> Rootfs | None:
        """Write the record of a complete tree anew; None if there is no tree."""
        root = self.root(digest)
        if not (root / "rootfs").is_dir():
            return None
        size_bytes = await self.measure(root / "rootfs")
        _write_durably(root / "image.json", _render_record(config, size_bytes, manifests))
        event("image.record_restored", digest=digest)
        return Rootfs(digest, root / "rootfs", config, size_bytes)

    async def discard(self, digest: str) -> None:
        """Remove an image and its references. The caller holds its locks."""
        self.drop_references(digest)
        root = self.root(digest)
        async with self.staging() as stage:
            with contextlib.suppress(FileNotFoundError):
                root.rename(stage / "removed")
        event("image.removed", digest=digest)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _render_record(config: ImageConfig, size_bytes: int, manifests: tuple[str, ...]) -> bytes:
    body = {
        "version": 1,
        "config": asdict(config),
        "size_bytes": size_bytes,
        "created_at": time.time(),
        "manifests": manifests,
    }
    return json.dumps(body, indent=1).encode()


def _config_from_json(value: dict[str, object]) -> ImageConfig:
    return ImageConfig(
        env=cast("dict[str, str]", value["env"]),
        workdir=str(value["workdir"]),
        user=str(value["user"]),
        entrypoint=tuple(cast("list[str]", value["entrypoint"])),
        cmd=tuple(cast("list[str]", value["cmd"])),
        labels=cast("dict[str, str]", value["labels"]),
        exposed_ports=tuple(cast("list[int]", value["exposed_ports"])),
        # Later than the first version of the record.
        start=str(value.get("start", "")),
        ready=str(value.get("ready", "")),
        cpus=cast("float", value.get("cpus", 0.0)),
        memory_mib=cast("int", value.get("memory_mib", 0)),
    )


def _write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that after a crash it holds the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with temporary.open("wb") as file:
        temporary.chmod(0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
