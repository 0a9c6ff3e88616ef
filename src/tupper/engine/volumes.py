"""Volumes: directories in the data directory that outlive every sandbox.

The row in the store says that a volume exists. It is written after the directory is there and
removed after the directory was set aside; a process that dies in between leaves a volume that is
whole, or one whose removal the next process finishes. A directory that no row speaks of and that
has something in it is never touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from tupper.core import userns
from tupper.core.backend import Mount
from tupper.core.errors import AlreadyExists, Conflict, InvalidArgument, NotFound, TupperError
from tupper.core.ids import new_token, new_volume_id
from tupper.core.log import problem
from tupper.core.paths import make_private
from tupper.core.sandbox import SandboxRecord
from tupper.core.volume import VolumeMount, VolumeRecord
from tupper.engine.store import Store
from tupper.engine.tree import Tree
from tupper.protocol.fields import parse_object

_KIND = "volume"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TREE = "tree"
_ASIDE = ".removed"
# The default user of our templates, so that its commands may write without being root.
_USER = 1000


class VolumeNotFound(NotFound):
    """No volume has this id or name, or it belongs to somebody else."""

    code = "volume_not_found"


class Volumes:
    """All volumes of one engine.

    Args:
        directory: holds one directory for each.
        store: remembers them.
    """

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory = directory
        self._store = store
        self._volumes: dict[str, VolumeRecord] = {}
        self._making: set[tuple[str, str]] = set()

    async def load(self) -> None:
        """Read what there is, and finish what a process before did not."""
        for text in await self._store.kept(_KIND):
            record = _parse(text)
            self._volumes[record.id] = record
        await asyncio.to_thread(self._tidy)

    def _tidy(self) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            volume_id = path.name.removesuffix(_ASIDE)
            if path.name.endswith(_ASIDE):
                if volume_id in self._volumes:
                    path.rename(path.with_name(volume_id))  # its removal was never confirmed
                else:
                    _remove(path)
            elif volume_id not in self._volumes:
                with contextlib.suppress(OSError):  # made and never handed out, so empty
                    (path / _TREE).rmdir()
                    path.rmdir()

    def list(self, owner_key: str | None = None) -> list[VolumeRecord]:
        """The volumes of an API key, or all for None; the oldest first."""
        return [v for v in self._volumes.values() if owner_key in (None, v.owner_key)]

    def find(self, reference: str, owner_key: str | None = None) -> VolumeRecord:
        """A volume by its id or name.

        Raises:
            VolumeNotFound: there is none, or it is another key's.
        """
        mine = self.list(owner_key)
        found = [v for v in mine if v.id == reference] or [v for v in mine if v.name == reference]
        if not found:
            raise VolumeNotFound(f"volume {reference[:200]!r} was not found")
        return min(found, key=lambda volume: volume.owner_key)  # the user's own first

    def by_id(self, volume_id: str) -> VolumeRecord | None:
        """A volume, whoever asks."""
        return self._volumes.get(volume_id)

    async def create(self, name: str, owner_key: str) -> VolumeRecord:
        """Make an empty volume.

        Raises:
            InvalidArgument: the name cannot be one.
            AlreadyExists: the owner has one of that name.
        """
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{name[:80]!r} cannot be a volume's name",
                hint="1 to 128 letters, digits, '_' and '-'",
            )
        taken = {(v.owner_key, v.name) for v in self._volumes.values()} | self._making
        if (owner_key, name) in taken:
            raise AlreadyExists(f"a volume named {name!r} exists")
        record = VolumeRecord(new_volume_id(), name, new_token(), owner_key, time.time())
        self._making.add((owner_key, name))
        try:
            await asyncio.to_thread(self._make, record.id)
            text = json.dumps(dataclasses.asdict(record))
            await self._store.keep(_KIND, record.id, owner_key, name, text)
            self._volumes[record.id] = record
        finally:
            self._making.discard((owner_key, name))
        return record

    def _make(self, volume_id: str) -> None:
        make_private(self._directory)
        place = self._directory / volume_id
        make_private(place)
        tree = place / _TREE
        tree.mkdir()
        if os.geteuid() == 0:
            os.chown(tree, _USER, _USER)
        # Whoever works inside may write, whatever its id; nobody outside gets past the parent.
        tree.chmod(0o777)
        for path in (place, self._directory):
            _sync(path)

    async def remove(self, volume_id: str, users: Iterable[SandboxRecord]) -> None:
        """Remove a volume with all that is in it.

        Args:
            volume_id: which.
            users: all sandboxes that live.

        Raises:
            VolumeNotFound: it is gone already.
            Conflict: a sandbox has it.
        """
        for user in users:
            if any(mount.volume_id == volume_id for mount in user.volumes):
                raise Conflict(
                    f"volume {volume_id} is in use by sandbox {user.id}",
                    hint="end the sandboxes that have it mounted first",
                )
        record = self._volumes.pop(volume_id, None)
        if record is None:
            raise VolumeNotFound(f"volume {volume_id!r} was not found")
        place = self._directory / volume_id
        aside = place.with_name(volume_id + _ASIDE)
        try:
            await asyncio.to_thread(place.rename, aside)
            await self._store.let_go(_KIND, volume_id)
        except (TupperError, OSError):
            with contextlib.suppress(OSError):
                aside.rename(place)
            self._volumes[volume_id] = record
            raise
        await asyncio.to_thread(_remove, aside)

    def tree(self, record: VolumeRecord) -> Tree:
        """Its files."""
        return Tree(self._place(record.id))

    def _place(self, volume_id: str) -> Path:
        return self._directory / volume_id / _TREE

    def resolve(self, wanted: Iterable[VolumeMount], owner_key: str) -> tuple[VolumeMount, ...]:
        """The mounts of a create, with ids.

        Raises:
            InvalidArgument: the owner has no volume of that name.
        """
        found: list[VolumeMount] = []
        for mount in wanted:
            try:
                record = self.find(mount.name, owner_key or None)
            except VolumeNotFound as error:
                raise InvalidArgument(error.message) from error
            found.append(VolumeMount(record.name, mount.path, record.id))
        return tuple(found)

    def mounts(self, volumes: Iterable[VolumeMount]) -> tuple[Mount, ...]:
        """What a backend has to mount for them."""
        return tuple(Mount(self._place(v.volume_id), v.path, read_only=False) for v in volumes)


def _parse(text: str) -> VolumeRecord:
    f = parse_object(text)
    created_at = f.number("created_at") or 0.0
    return VolumeRecord(
        f.text("id"), f.text("name"), f.text("token"), f.text("owner_key"), created_at
    )


def _remove(path: Path) -> None:
    try:
        userns.remove_tree(path)
    except (TupperError, OSError) as error:
        problem("volume.not_removed", volume=path.name, message=str(error))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
