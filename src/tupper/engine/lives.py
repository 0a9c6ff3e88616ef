"""The lives of sandboxes: they pause, resume, and are copied.

Whatever is begun here is carried through, also when the caller goes away: half a pause is no state
that anybody can use.
"""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import Coroutine
from typing import TypeVar

from tupper.core.errors import Conflict, InvalidArgument, TupperError
from tupper.core.ids import is_snapshot_id
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.settings import Settings
from tupper.core.snapshot import SnapshotRecord
from tupper.engine.adoption import check_health
from tupper.engine.context import Context
from tupper.engine.copies import (
    MOST_FORKS,
    forget_saved,
    fork_of,
    outcome,
    saved_for_forks,
)
from tupper.engine.creation import Creation
from tupper.engine.events import Events
from tupper.engine.events import Kind as EventKind
from tupper.engine.request import check_timeout
from tupper.engine.reservation import check_capacity
from tupper.engine.restoring import Origin, Resumption
from tupper.engine.sandbox import Sandbox
from tupper.engine.saving import pause
from tupper.engine.snapshots import (
    keep_snapshot,
    list_snapshots,
    refuse_mounts,
    remove_snapshot,
)
from tupper.engine.watch import Kind, Watch

_T = TypeVar("_T")
HEALTH_S = 2.0


class Lives(abc.ABC):
    """The part of the engine that changes the state of sandboxes that are there.

    Args:
        context: of the engine.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watch = Watch(context, self._pause_expired)
        self._changes: set[asyncio.Task[object]] = set()

    @abc.abstractmethod
    def _find(self, reference: str, owner_key: str | None = None) -> Sandbox: ...

    @abc.abstractmethod
    def _find_ready(self, reference: str) -> Sandbox: ...

    @abc.abstractmethod
    def _check_alive(self, sandbox: Sandbox, reference: str) -> None: ...

    @abc.abstractmethod
    async def _extend(self, sandbox: Sandbox, timeout_s: float) -> None: ...

    @abc.abstractmethod
    async def _run_creation(self, sandbox: Sandbox, making: Creation) -> SandboxRecord: ...

    @property
    def events(self) -> Events:
        """What happens to sandboxes."""
        return self._context.events

    @property
    def settings(self) -> Settings:
        """As given."""
        return self._context.settings

    async def connect(
        self, reference: str, timeout_s: float | None, *, cold: bool = False
    ) -> SandboxRecord:
        """Attach to a sandbox; a paused one is resumed. Its end never moves forward in time.

        Args:
            reference: which.
            timeout_s: it shall live at least this long from now; None changes nothing, and for a
                paused one means what was asked for at create.
            cold: boot a paused one from its files, although its memory was saved.
        """
        check_timeout(timeout_s, self.settings)
        sandbox = self._find_ready(reference)
        if await self._steadily(self._resume(sandbox, timeout_s, cold=cold)):
            return sandbox.record
        if timeout_s is not None:
            await self._extend(sandbox, timeout_s)
        await check_health(sandbox, timeout_s=HEALTH_S)
        return sandbox.record

    def is_paused(self, reference: str) -> bool:
        """Whether a sandbox is paused."""
        return self._find(reference).is_paused

    async def pause(self, reference: str, *, memory: bool = True) -> SandboxRecord:
        """Save a sandbox and take its machine down; from then on it uses disk only.

        Args:
            reference: which.
            memory: it goes on where it was; else it boots from its files.

        Raises:
            Conflict: it is paused already.
            Unsupported: its backend cannot save.
            MachineUnreachable: its agent does not answer. It goes on.
        """
        sandbox = self._find_ready(reference)
        await self._steadily(self._pause(sandbox, memory=memory))
        return sandbox.record

    async def _pause(self, sandbox: Sandbox, *, memory: bool) -> None:
        async with sandbox.lock:
            if sandbox.is_paused:
                raise Conflict(f"sandbox {sandbox.id} is paused already")
            self._check_alive(sandbox, sandbox.id)
            await pause(self._context, self._watch, sandbox, memory=memory)

    async def _pause_expired(self, sandbox: Sandbox, kind: Kind) -> None:
        """Pause a sandbox whose time is over, unless it was given more meanwhile."""

        async def work() -> None:
            async with sandbox.lock:
                deadline = sandbox.record.deadline
                is_over = deadline is not None and deadline <= time.time()
                if sandbox.is_running and (kind == "idle" or is_over):
                    memory = sandbox.record.pause_memory
                    await pause(self._context, self._watch, sandbox, memory=memory)

        await self._steadily(work())

    async def resume(self, reference: str, timeout_s: float | None = None) -> SandboxRecord:
        """Let a paused sandbox go on where it was.

        Args:
            reference: which.
            timeout_s: how long it lives from then; None is as asked for at create.

        Raises:
            Conflict: it runs.
        """
        check_timeout(timeout_s, self.settings)
        sandbox = self._find_ready(reference)
        if not await self._steadily(self._resume(sandbox, timeout_s)):
            raise Conflict(f"sandbox {sandbox.id} is running already")
        return sandbox.record

    async def _resume(
        self, sandbox: Sandbox, timeout_s: float | None, *, cold: bool = False
    ) -> bool:
        """Whether it was paused and runs now."""
        async with sandbox.lock:
            if not sandbox.is_paused:
                self._check_alive(sandbox, sandbox.id)
                return False
            check_capacity(self._context)
            life_s = sandbox.record.timeout_s if timeout_s is None else timeout_s
            await Resumption(self._context, sandbox, life_s, cold=cold).run()
            self._watch.begin(sandbox)
            self._context.events.publish(EventKind.RESUMED, sandbox.record)
            await forget_saved(self._context, sandbox)
        return True

    async def _steadily(self, change: Coroutine[object, object, _T]) -> _T:
        """Carry a change through, also when its caller goes away."""
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    # Copies.

    async def snapshot(
        self, reference: str, *, name: str = "", memory: bool = True
    ) -> SnapshotRecord:
        """Save a running sandbox, which goes on, to start others from.

        Args:
            reference: which sandbox.
            name: ``name`` or ``name:tag``; empty for none.
            memory: others go on from there; else they boot from its files.
        """
        sandbox = self._find_ready(reference)

        async def work() -> SnapshotRecord:
            async with sandbox.lock:
                self._check_awake(sandbox)
                return await keep_snapshot(self._context, self._watch, sandbox, name, memory=memory)

        return await self._steadily(work())

    async def list_snapshots(
        self, *, sandbox: str = "", name: str = "", owner_key: str | None = None
    ) -> list[SnapshotRecord]:
        """The snapshots of a sandbox, or with an id or a name, or all; the newest first.

        Args:
            sandbox: id of the sandbox.
            name: id or name, with or without a tag.
            owner_key: only those of this API key; None for everybody's.
        """
        return list_snapshots(self._context, sandbox=sandbox, name=name, owner_key=owner_key)

    async def remove_snapshot(self, reference: str, *, owner_key: str | None = None) -> None:
        """Remove a snapshot. Sandboxes that were started from it go on.

        Raises:
            SnapshotNotFound: there is none, or none of this API key.
            Conflict: a sandbox is being started from it.
        """
        await self._steadily(remove_snapshot(self._context, reference, owner_key))

    async def _snapshot_for(self, request: CreateRequest) -> SnapshotRecord | None:
        """The snapshot that a request names as its template, if no template has that name."""
        owner = request.owner_key or None
        found = list_snapshots(self._context, name=request.template, owner_key=owner)
        if request.image or not found:
            return None
        if is_snapshot_id(request.template.partition(":")[0]):
            return found[0]
        names = {known.name for known in await self._context.parts.templates.list()}
        return None if request.template in names else found[0]

    async def fork(
        self, reference: str, *, count: int = 1, timeout_s: float | None = 300.0
    ) -> list[SandboxRecord | TupperError]:
        """Start copies of a running sandbox, which goes on.

        Args:
            reference: which.
            count: how many copies, at most 100.
            timeout_s: how long each lives; None for no end.

        Returns:
            For each copy its record, or why it could not be started.

        Raises:
            Conflict: it is paused.
        """
        check_timeout(timeout_s, self.settings)
        if not 1 <= count <= MOST_FORKS:
            raise InvalidArgument(f"count must be from 1 to {MOST_FORKS}, not {count}")
        source = self._find_ready(reference)
        refuse_mounts(source, "a fork")

        async def work() -> list[SandboxRecord | TupperError]:
            async with saved_for_forks(self._context, self._watch, source) as origin:
                tasks = [
                    asyncio.ensure_future(self._fork_one(source, origin, timeout_s))
                    for _ in range(count)
                ]
                return [await outcome(task) for task in tasks]

        return await self._steadily(work())

    async def _fork_one(
        self, source: Sandbox, origin: Origin, timeout_s: float | None
    ) -> SandboxRecord:
        sandbox, making = fork_of(self._context, source.record, origin, timeout_s)
        return await self._run_creation(sandbox, making)

    def _check_awake(self, sandbox: Sandbox) -> None:
        if sandbox.is_paused:
            raise Conflict(f"sandbox {sandbox.id} is paused")
        self._check_alive(sandbox, sandbox.id)

    def resumes_itself(self, sandbox_id: str) -> bool:
        """Whether a sandbox is paused and wants to be resumed by whoever uses one of its ports."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.is_paused or not sandbox.record.auto_resume:
            return False
        return sandbox.record.saved is not None and sandbox.record.saved.memory

    def reachable(self) -> list[Sandbox]:
        """All that run, or would if somebody used one of their ports."""
        known = self._context.sandboxes.values()
        return [s for s in known if s.is_running or self.resumes_itself(s.id)]
