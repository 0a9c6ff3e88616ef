"""Machines that have booted and wait for their settings, saved: starting is restoring.

The first sandbox of a kind boots; before its guest is told whom it belongs to, it is saved. The
next ones are loaded from there. Nothing of a sandbox is in such a machine: no name, no token, no
address, and its disk holds what every fresh one does. It is a cache, by all that decides what is in
it; whatever is wrong with one, it is thrown away, and the sandbox boots.

Each sandbox gets a copy of its memory. To let them see one file, each with its own changes, would
save less than it costs: a hole that a guest writes to is then filled twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import copying, saving
from tupper.core import log
from tupper.core.errors import TupperError
from tupper.core.paths import make_private
from tupper.protocol.connect import as_object

_FACTS = "facts.json"
_OPEN_MOST = 8
_KEPT_MOST = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """A saved machine.

    Args:
        directory: where it is.
        digests: of its files.
    """

    directory: Path
    digests: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Machine:
    """A saved machine that is open.

    Args:
        ram: its memory.
        state: of its devices.
        disk: that it has mounted.
    """

    ram: copying.Opened
    state: copying.Opened
    disk: copying.Opened

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody has written to it since it was checked."""
        return all(file.is_unchanged for file in (self.ram, self.state, self.disk))


class Warm:
    """The saved machines of one backend.

    Args:
        place: a directory for them.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        # By what is in them: another process may put another one in the place of the same name.
        self._open: dict[tuple[str, ...], Machine] = {}
        self._lock = asyncio.Lock()
        self._saving: set[str] = set()

    @staticmethod
    def key(facts: Mapping[str, object]) -> str:
        """The name of a kind, by all that decides what is in its memory."""
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def find(self, key: str) -> Kept | None:
        """The saved machine of a kind, if there is one."""
        directory = self._place / key
        with contextlib.suppress(OSError, ValueError):
            facts = as_object(json.loads((directory / _FACTS).read_text())) or {}
            digests = as_object(facts.get("digests"))
            if digests is not None:
                os.utime(directory)  # it is in use
                return Kept(directory, digests)
        return None

    async def open(self, kept: Kept) -> Machine:
        """What is in it, checked once for as long as it stays open.

        Raises:
            MachineFailed, OSError: it is damaged.
        """
        names = (saving.RAM, saving.STATE, saving.DISK)
        key = tuple(str(kept.digests.get(name)) for name in names)
        async with self._lock:
            machine = self._open.pop(key, None)
            if machine is None or not machine.is_unchanged:
                files = [
                    await asyncio.to_thread(copying.opened, kept.directory / name, digest)
                    for name, digest in zip(names, key, strict=True)
                ]
                machine = Machine(*files)
            self._open[key] = machine  # the last is the one used last
            while len(self._open) > _OPEN_MOST:
                del self._open[next(iter(self._open))]
            return machine

    async def keep(self, key: str, source: saving.Source, facts: Mapping[str, object]) -> None:
        """Save a machine that waits; it goes on waiting. What fails is logged."""
        if key in self._saving or self.find(key) is not None:
            return
        self._saving.add(key)
        temporary = self._place / f"tmp-{key}-{secrets.token_hex(4)}"
        try:
            make_private(temporary)
            digests = await saving.save(source, temporary)
            (temporary / _FACTS).write_text(json.dumps({**facts, "digests": digests}))
            temporary.rename(self._place / key)
            log.event("warm.kept", name=key)
            await asyncio.to_thread(self._collect, facts)
        except (TupperError, OSError) as error:
            log.problem("warm.not_kept", name=key, message=str(error)[:500])
        finally:
            self._saving.discard(key)
            await asyncio.to_thread(shutil.rmtree, temporary, ignore_errors=True)

    async def drop(self, key: str) -> None:
        """Throw one away that is of no use."""
        await asyncio.to_thread(shutil.rmtree, self._place / key, ignore_errors=True)
        log.event("warm.dropped", name=key)

    def _collect(self, facts: Mapping[str, object]) -> None:
        """Remove those that no start will ask for again, and the oldest of too many."""
        kept: list[tuple[float, Path]] = []
        for directory in self._place.iterdir():
            if directory.name.startswith("tmp-"):
                continue
            with contextlib.suppress(OSError, ValueError):
                theirs = as_object(json.loads((directory / _FACTS).read_text())) or {}
                if all(theirs.get(name) == facts[name] for name in ("qemu", "guest")):
                    kept.append((directory.stat().st_mtime, directory))
                    continue
            shutil.rmtree(directory, ignore_errors=True)
        for _, directory in sorted(kept)[:-_KEPT_MOST]:
            shutil.rmtree(directory, ignore_errors=True)
