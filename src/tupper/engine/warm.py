"""Sandboxes of templates that start something begin where that is ready already.

The first sandbox of such a template is started as ever, and is saved when it is ready, before its
user gets it. The next ones are restored from that, unless they ask for what is fixed by then: an
environment, a user, a directory, mounts, other limits. It is a cache, in ``data/warm``, by all that
decides what is in the saved machine; whatever is wrong with one, it is thrown away, and the sandbox
is started as ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tupper.core.backend import Backend, Rootfs
from tupper.core.errors import MachineFailed, TupperError
from tupper.core.log import event, problem
from tupper.core.sandbox import CreateRequest
from tupper.core.snapshot import Saved
from tupper.core.version import VERSION
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.record import parse_saved
from tupper.engine.request import Limits, decide_limits
from tupper.engine.restoring import Origin, Revival
from tupper.engine.sandbox import Sandbox
from tupper.engine.saving import FACTS, check_saves, snapshot_into, sync_directory

if TYPE_CHECKING:
    from collections.abc import Generator

    from tupper.engine.watch import Watch


class WarmFailedError(MachineFailed):
    """A saved machine could not be restored; it was thrown away."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A saved machine of a template.

    Args:
        directory: where it is.
        saved: what is known of it.
        rootfs: what it stands on.
        limits: that it was started with.
    """

    directory: Path
    saved: Saved
    rootfs: Rootfs
    limits: Limits


class Warm:
    """The saved machines of one engine's templates."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._uses: Counter[Path] = Counter()
        self._saving: set[Path] = set()

    @property
    def _place(self) -> Path:
        return self._context.paths.data / "warm"

    async def find(self, request: CreateRequest) -> Kept | None:
        """A saved machine that a request can be served with."""
        if not _is_plain(request):
            return None
        with suppress(TupperError, OSError):
            rootfs = await self._context.parts.templates.peek(request.template)
            if rootfs is None or not (rootfs.config.start or rootfs.config.ready):
                return None
            limits = self._limits(request, rootfs)
            directory = await self._directory(rootfs, limits)
            saved = await asyncio.to_thread(_read, directory)
            if saved is not None and request.backend in ("", saved.backend):
                return Kept(directory, saved, rootfs, limits)
        return None

    def start(self, sandbox: Sandbox, request: CreateRequest, kept: Kept) -> Revival:
        """The making of a sandbox from a saved machine."""
        sandbox.change(
            cpus=request.cpus or kept.rootfs.config.cpus or sandbox.record.cpus,
            memory_mib=kept.limits.memory_mib,
        )
        return _FromWarm(self, self._context, sandbox, request, kept)

    async def keep(self, watch: Watch, sandbox: Sandbox, request: CreateRequest) -> None:
        """Save a sandbox that has just become ready, if the next ones can begin there."""
        if not _is_plain(request):
            return
        try:
            rootfs = await self._context.parts.images.lookup(sandbox.record.rootfs_digest)
            if rootfs is None or not (rootfs.config.start or rootfs.config.ready):
                return
            await check_saves(self._context, sandbox, "snapshot")
            directory = await self._directory(rootfs, self._limits(request, rootfs))
            if not directory.exists() and directory not in self._saving:
                await self._save(watch, sandbox, directory)
        except (TupperError, OSError) as error:
            problem("warm.not_kept", sandbox=sandbox.id, message=str(error)[:500])

    async def _save(self, watch: Watch, sandbox: Sandbox, directory: Path) -> None:
        temporary = self._place / f"tmp-{sandbox.id}"
        self._saving.add(directory)
        try:
            async with sandbox.lock:
                saved = await snapshot_into(self._context, watch, sandbox, temporary, durable=True)
            temporary.rename(directory)
            await asyncio.to_thread(sync_directory, self._place)
            event("warm.kept", sandbox=sandbox.id, bytes=saved.size_bytes)
        finally:
            self._saving.discard(directory)
            await asyncio.shield(remove_tree(temporary))

    def _limits(self, request: CreateRequest, rootfs: Rootfs) -> Limits:
        limits = decide_limits(request, self._context.settings)
        memory_mib = rootfs.config.memory_mib
        if request.memory_mib is None and memory_mib:
            limits = Limits(limits.cpus, memory_mib, limits.disk_mib, limits.pids)
        return limits

    async def _directory(self, rootfs: Rootfs, limits: Limits) -> Path:
        """By all that is fixed in a saved machine."""
        context = self._context
        binary = context.parts.agent_binary()
        agent, _ = await asyncio.to_thread(context.binaries.keep, binary)
        added = await context.trust.added() if context.settings.trust_host_ca else ""
        facts = [
            VERSION, rootfs.digest, limits.memory_mib, limits.disk_mib, limits.pids, agent, added,
        ]  # fmt: skip
        return self._place / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    @contextmanager
    def using(self, directory: Path) -> Generator[None]:
        """Keep a saved machine from being removed."""
        self._uses[directory] += 1
        try:
            yield
        finally:
            self._uses[directory] -= 1

    async def drop(self, directory: Path) -> None:
        """Throw one away that is of no use."""
        await remove_tree(directory)
        event("warm.dropped", name=directory.name)

    async def prune(self) -> None:
        """Throw all away that nobody is starting from."""
        async for directory, _ in self._all():
            if not self._uses[directory]:
                await self.drop(directory)

    async def sweep(self) -> set[str]:
        """At the start of an engine: remove what is not whole or stands on nothing.

        Returns:
            The agents that run in what stays.
        """
        agents: set[str] = set()
        async for directory, saved in self._all():
            images = self._context.parts.images
            if saved is None or await images.lookup(saved.rootfs_digest) is None:
                await self.drop(directory)
            else:
                agents.add(saved.agent)
        return agents

    async def _all(self) -> AsyncIterator[tuple[Path, Saved | None]]:
        for directory in await asyncio.to_thread(lambda: list(self._place.glob("*"))):
            if directory in self._saving or (directory.name.startswith("tmp-") and self._saving):
                continue
            is_whole = not directory.name.startswith("tmp-")
            yield directory, await asyncio.to_thread(_read, directory) if is_whole else None


class _FromWarm(Revival):
    """The making of a sandbox from a template's saved machine."""

    def __init__(
        self, warm: Warm, context: Context, sandbox: Sandbox, request: CreateRequest, kept: Kept
    ) -> None:
        async def known() -> Saved:
            return kept.saved

        super().__init__(
            context,
            sandbox,
            request,
            Origin(kept.directory, known),
            backend=kept.saved.backend,
            rootfs_digest=kept.rootfs.digest,
        )
        self._warm = warm
        self._kept = kept

    async def run(self) -> None:
        """See the base."""
        with self._warm.using(self._kept.directory):
            await super().run()

    async def _bring_up(self, backend: Backend, undo: AsyncExitStack, marks: list[float]) -> None:
        try:
            await super()._bring_up(backend, undo, marks)
        except (TupperError, OSError) as error:
            await asyncio.shield(self._warm.drop(self._kept.directory))
            raise WarmFailedError(str(error)) from error


def _is_plain(request: CreateRequest) -> bool:
    """Whether a request asks for nothing that has to be there before the start command is."""
    asked: Mapping[str, object] = {
        "image": request.image, "mounts": request.mounts, "volumes": request.volumes,
        "env": request.env, "user": request.user, "workdir": request.workdir,
        "options": request.backend_options, "isolation": request.min_isolation,
        # Fixed in a saved machine, and there shall not be one for every number that is asked for.
        "memory": request.memory_mib, "disk": request.disk_mib, "pids": request.pids,
    }  # fmt: skip
    return not any(asked.values())


def _read(directory: Path) -> Saved | None:
    try:
        return parse_saved((directory / FACTS).read_text())
    except (OSError, ValueError, TupperError):
        return None
