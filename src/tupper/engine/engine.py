"""The engine: the only door to sandboxes on this machine.

It holds the lock of its data directory from :meth:`Engine.open` to :meth:`Engine.close`. Sandboxes
live on after ``close``, after a kill -9 and after a crash; the next engine on the directory takes
them over. Methods may be called from any task of the loop that opened it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tupper.core import userns
from tupper.core.backend import Probe
from tupper.core.errors import (
    Conflict,
    InvalidArgument,
    OutOfDisk,
    SandboxNotFound,
    TupperError,
)
from tupper.core.lifecycle import EndReason, ExitReason, State
from tupper.core.paths import Paths, make_private
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.settings import Settings
from tupper.engine.adoption import adopt_all, check_health
from tupper.engine.builds import Builds
from tupper.engine.context import Context
from tupper.engine.copies import (
    start_from,
)
from tupper.engine.creation import Creation
from tupper.engine.ending import begin_end
from tupper.engine.events import Kind
from tupper.engine.listing import Page, Query, select_page
from tupper.engine.lives import HEALTH_S, Lives
from tupper.engine.lookup import find_sandbox
from tupper.engine.metrics import Sample, collect
from tupper.engine.networking import change_network
from tupper.engine.parts import Parts
from tupper.engine.ports import LOOPBACK, publish
from tupper.engine.request import check_port, check_timeout
from tupper.engine.reservation import check_free_disk, reserve
from tupper.engine.sandbox import UNREACHABLE, Sandbox
from tupper.engine.secrets import Secrets
from tupper.engine.snapshots import (
    request_from,
)
from tupper.engine.store import Store
from tupper.engine.volumes import Volumes
from tupper.engine.warm import Warm, WarmFailedError

if TYPE_CHECKING:
    from tupper.images import Images, Pruned, Templates

_LOG_S = 5.0
_CREATIONS_AT_ONCE = 64


def _find_parts(paths: Paths, settings: Settings, engine_id: str) -> Parts:
    from tupper.engine.assembly import find_parts  # noqa: PLC0415 - imports all the layers below

    return find_parts(paths, settings, engine_id)


def _remove_layers(directory: Path) -> None:
    for layer in directory.glob("*"):
        with contextlib.suppress(OSError, TupperError):
            userns.remove_tree(layer)


class Engine(Lives):
    """Made by :meth:`open`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._closed = False
        self._slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)
        self.builds = Builds(context)
        self._warm = Warm(context)

    @classmethod
    async def open(
        cls,
        paths: Paths,
        settings: Settings,
        *,
        find_parts: Callable[[Paths, Settings, str], Parts] | None = None,
    ) -> Self:
        """Take the data directory, adopt what lives in it and remove what is dead.

        Args:
            paths, settings: of this engine.
            find_parts: makes the layers below for (paths, settings, engine id).

        Raises:
            StoreError: the data directory cannot be used.
        """
        store = await Store.open(paths.data)
        try:
            make_private(paths.runtime)
            make_private(paths.data / "sandboxes")
            make_private(paths.runtime / "s")
            parts = (find_parts or _find_parts)(paths, settings, store.engine_id)
            engine = cls(Context(paths, settings, store, parts))
            parts.bind(engine._context)
            await engine._context.volumes.load()
            await engine._context.secrets.load()
            await adopt_all(engine._context, engine._watch)
            engine.builds.sweep()
        except BaseException:
            await store.close()
            raise
        return engine

    async def close(self) -> None:
        """Let go of everything. Creations are undone; sandboxes live on. Idempotent."""
        context = self._context
        if self._closed:
            return
        self._closed = True
        self.events.close()
        self._watch.close()
        living = list(context.sandboxes.values())
        for sandbox in living:
            sandbox.cancel_creation()
        making = [s.creation for s in living if s.creation is not None]
        await asyncio.gather(*making, return_exceptions=True)
        ending = [s.ending for s in living if s.ending is not None]
        await asyncio.gather(*ending, *self._changes, return_exceptions=True)
        tasks = [*context.tasks, *(task for s in living for task in s.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sandbox in living:
            for forward in sandbox.forwards.values():
                forward.close()
            sandbox.abort_streams()
            if sandbox.client is not None:
                await sandbox.client.close()
        await context.store.close()

    # What there is.

    @property
    def engine_id(self) -> str:
        """Part of every host-wide name of ours."""
        return self._context.store.engine_id

    @property
    def store(self) -> Store:
        """Where API keys are kept, too."""
        return self._context.store

    @property
    def images(self) -> Images:
        """The image store; removals go through :meth:`remove_image` and :meth:`prune_images`."""
        return self._context.parts.images

    @property
    def templates(self) -> Templates:
        """The templates."""
        return self._context.parts.templates

    @property
    def volumes(self) -> Volumes:
        """The volumes; removals go through :meth:`remove_volume`."""
        return self._context.volumes

    @property
    def secrets(self) -> Secrets:
        """The secrets."""
        return self._context.secrets

    def check_free_disk(self) -> None:
        """Raise :class:`OutOfDisk` when the host's disk is nearly full."""
        check_free_disk(self._context)

    async def remove_volume(self, volume_id: str) -> None:
        """Remove a volume with all that is in it; a :class:`Conflict` if a sandbox has it."""
        records = [sandbox.record for sandbox in self._context.sandboxes.values()]
        await self._context.volumes.remove(volume_id, users=records)

    @property
    def count(self) -> int:
        """How many sandboxes run or are being made."""
        return len(self._context.awake())

    @property
    def is_busy(self) -> bool:
        """Whether something would be cut off if this process left for good."""
        return bool(self._context.awake() or self.builds.running)

    def images_in_use(self) -> set[str]:
        """Digests of root filesystems that sandboxes, paused ones too, and snapshots stand on."""
        records = [sandbox.record for sandbox in self._context.sandboxes.values()]
        used = {record.rootfs_digest for record in records if record.rootfs_digest}
        return used | {kept.saved.rootfs_digest for kept in self._context.kept.values()}

    async def probes(self) -> list[Probe]:
        """What each backend says about this host."""
        backends = self._context.parts.backends.values()
        return list(await asyncio.gather(*(backend.probe() for backend in backends)))

    def default_backend(self, probes: list[Probe]) -> str:
        """The backend a sandbox gets if nobody says; empty if none is usable."""
        try:
            return self._context.parts.choose(probes, self.settings.backend, None).backend
        except TupperError:
            return ""

    # Making and ending.

    async def create(self, request: CreateRequest) -> SandboxRecord:
        """Make a sandbox; returns when its agent answers.

        If the caller is cancelled, so is the creation, and nothing is left.

        Raises:
            InvalidArgument, NotFound, AlreadyExists, CapacityReached, OutOfDisk: before anything
                was made.
            Conflict: it was killed meanwhile.
            TupperError: of the step that failed.
        """
        snapshot = await self._snapshot_for(request)
        if snapshot is not None:
            request = request_from(request, snapshot)
        elif not request.image:
            self.builds.check_use(request.template, request.owner_key)
        kept = None if snapshot is not None else await self._warm.find(request)
        sandbox, request = reserve(self._context, request)
        making = Creation(self._context, sandbox, request)
        if snapshot is not None:
            making = start_from(self._context, sandbox, request, snapshot)
        elif kept is not None:
            making = self._warm.start(sandbox, request, kept)
        try:
            return await self._run_creation(sandbox, making)
        except WarmFailedError:
            return await self.create(request)  # what was saved is gone, so as ever

    async def _run_creation(self, sandbox: Sandbox, making: Creation) -> SandboxRecord:
        creation = asyncio.get_running_loop().create_task(self._make(sandbox, making))
        sandbox.creation = creation
        try:
            await asyncio.shield(creation)
        except asyncio.CancelledError:
            if creation.cancelled():
                raise Conflict(f"sandbox {sandbox.id} was ended while it was started") from None
            sandbox.cancel_creation()
            await asyncio.wait({creation})
            if not creation.cancelled() and creation.exception() is None:
                await self._finish(sandbox, ExitReason(EndReason.KILLED, "its creator went away"))
            raise
        return sandbox.record

    async def _make(self, sandbox: Sandbox, making: Creation) -> None:
        try:
            async with self._slots:
                await making.run()
        except BaseException as error:
            self._context.sandboxes.pop(sandbox.id, None)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OutOfDisk(
                    f"the disk of the data directory is full: {error.strerror}",
                    hint="free some space; killing a sandbox frees what its disk takes",
                ) from error
            raise
        finally:
            sandbox.creation = None
        self._watch.begin(sandbox)
        self.events.publish(Kind.CREATED, sandbox.record)
        if type(making) is Creation:
            keeping = self._warm.keep(self._watch, sandbox, making.request)
            await asyncio.wait({self._context.spawn(keeping, f"warm {sandbox.id}", of=sandbox)})

    async def kill(self, reference: str) -> None:
        """End a sandbox, also one that is being made; returns when nothing of it is left.

        Raises:
            SandboxNotFound: there is none (any more).
        """
        sandbox = self._find(reference)
        if sandbox.creation is not None:
            creation = sandbox.creation
            sandbox.cancel_creation()
            await asyncio.wait({creation})
            if sandbox.record.state is not State.RUNNING:
                return
        await self._finish(sandbox, ExitReason(EndReason.KILLED, "killed by its user"))

    async def _finish(self, sandbox: Sandbox, reason: ExitReason) -> None:
        async with sandbox.lock:
            task = begin_end(self._context, sandbox, reason)
        await asyncio.shield(task)

    # Looking.

    def _find(self, reference: str, owner_key: str | None = None) -> Sandbox:
        return find_sandbox(self._context.sandboxes, reference, owner_key)

    def _find_running(self, reference: str) -> Sandbox:
        sandbox = self._find(reference)
        if not sandbox.is_running:
            raise SandboxNotFound(f"sandbox {reference!r} is not running")
        return sandbox

    def _find_ready(self, reference: str) -> Sandbox:
        """One that runs or is paused."""
        sandbox = self._find(reference)
        if not sandbox.is_running and not sandbox.is_paused:
            raise SandboxNotFound(f"sandbox {reference!r} is not running")
        return sandbox

    async def resolve(self, reference: str, owner_key: str | None) -> str:
        """The id of a sandbox, living or ended.

        Args:
            reference: which.
            owner_key: only one of this API key's own; None for anybody's.

        Raises:
            SandboxNotFound: the key has none of that name; somebody else may.
        """
        try:
            return self._find(reference, owner_key).id
        except SandboxNotFound:
            record = await self._context.store.find_ended(reference, owner_key=owner_key)
            if record is None:
                raise
            return record.id

    def record(self, sandbox_id: str) -> SandboxRecord | None:
        """The record of a sandbox that lives, by its id."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        return sandbox.record if sandbox is not None else None

    async def get(self, reference: str, *, ended: bool = False) -> SandboxRecord:
        """A sandbox's record; with ``ended`` also that of one that ended within a day."""
        try:
            sandbox = self._find_ready(reference)
        except SandboxNotFound:
            record = await self._context.store.find_ended(reference) if ended else None
            if record is None:
                raise
            return record
        if sandbox.is_running:
            await check_health(sandbox, timeout_s=HEALTH_S)
        return sandbox.record

    def health(self, sandbox_id: str) -> str:
        """``ok`` or ``unreachable``, as last seen."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        return sandbox.health if sandbox is not None else UNREACHABLE

    async def page(self, query: Query) -> Page:
        """A page of sandboxes."""
        ended = await self._context.store.ended(query) if State.ENDED in query.states else []
        known = self._context.sandboxes.values()
        living = (s.record for s in known if s.is_running or s.is_paused)
        return select_page(itertools.chain(living, ended), query)

    def running(self) -> list[Sandbox]:
        """All running sandboxes."""
        return [s for s in self._context.sandboxes.values() if s.is_running]

    # Changing.

    async def set_timeout(self, reference: str, timeout_s: float | None) -> SandboxRecord:
        """The sandbox ends this long from now; 0 or less is now, None is never."""
        sandbox = self._find_running(reference)
        if timeout_s is not None and timeout_s > 0:
            check_timeout(timeout_s, self.settings)
        async with sandbox.lock:
            self._check_alive(sandbox, reference)
            deadline = None if timeout_s is None else time.time() + max(timeout_s, 0.0)
            await self._set_deadline(sandbox, deadline)
        return sandbox.record

    async def refresh(self, reference: str, duration_s: float) -> None:
        """The sandbox lives at least this long from now."""
        check_timeout(duration_s or None, self.settings)
        await self._extend(self._find_running(reference), duration_s)

    async def _extend(self, sandbox: Sandbox, timeout_s: float) -> None:
        async with sandbox.lock:
            self._check_alive(sandbox, sandbox.id)
            wanted, have = time.time() + timeout_s, sandbox.record.deadline
            if have is not None and wanted > have:
                await self._set_deadline(sandbox, wanted)

    def _check_alive(self, sandbox: Sandbox, reference: str) -> None:
        if not sandbox.is_running:
            raise SandboxNotFound(f"sandbox {reference!r} was not found")

    async def _set_deadline(self, sandbox: Sandbox, deadline: float | None) -> None:
        sandbox.change(deadline=deadline)
        await self._context.store.save(sandbox.record)
        self._watch.reschedule(sandbox)

    async def set_idle_timeout(self, reference: str, idle_timeout_s: float | None) -> None:
        """The sandbox ends after this long without activity; None is never."""
        if idle_timeout_s is not None and idle_timeout_s <= 0:
            raise InvalidArgument(f"idle timeout must be above 0 s, not {idle_timeout_s:g}")
        sandbox = self._find_running(reference)
        async with sandbox.lock:
            self._check_alive(sandbox, reference)
            sandbox.change(idle_timeout_s=idle_timeout_s)
            await self._context.store.save(sandbox.record)
            self._watch.reschedule_idle(sandbox, time.time())

    async def update_network(
        self,
        reference: str,
        *,
        allow_internet: bool,
        allow_out: tuple[str, ...],
        deny_out: tuple[str, ...],
    ) -> None:
        """Replace what a sandbox may reach, at once. Its ports of the host stay.

        Raises:
            InvalidArgument: not an IPv4 address or CIDR; the old policy stays.
            Unsupported: the sandbox has no network of its own.
        """
        sandbox = self._find_running(reference)
        async with sandbox.lock:
            self._check_alive(sandbox, reference)
            await change_network(
                self._context,
                sandbox,
                {"allow_internet": allow_internet, "allow_out": allow_out, "deny_out": deny_out},
            )

    async def publish_port(self, reference: str, port: int, *, host_port: int = 0) -> str:
        """Make a port inside reachable on the host's loopback; returns ``address:port``.

        Idempotent. The same number is used again after a restart of the background process.

        Raises:
            AlreadyExists: the host's port is taken.
            Conflict: the sandbox's ports are private.
        """
        check_port(port)
        check_port(host_port, least=0)
        sandbox = self._find_running(reference)
        if not sandbox.record.ingress.is_public:
            raise Conflict(
                f"the ports of sandbox {sandbox.id} are private, and one published on the host "
                "asks for no token"
            )
        async with sandbox.lock:
            self._check_alive(sandbox, reference)
            number = await publish(sandbox, self._context.parts, port, host_port)
            await self._context.store.save(sandbox.record)
        return f"{LOOPBACK}:{number}"

    # Asking.

    async def metrics(
        self, reference: str, start_s: float | None = None, end_s: float | None = None
    ) -> list[Sample]:
        """What it used in a range of unix seconds, the oldest first."""
        return await collect(self._find_running(reference), start_s, end_s)

    async def log(self, reference: str) -> str:
        """The agent's log, or the last words of a machine that has ended."""
        try:
            sandbox = self._find(reference)
        except SandboxNotFound:
            record = await self._context.store.find_ended(reference)
            if record is None:
                raise
            lines = [f"ended: {record.end_reason}: {record.end_detail}", record.last_words]
            return "\n".join(line for line in lines if line).rstrip() + "\n"
        async with asyncio.timeout(_LOG_S):
            return await sandbox.agent.log()

    async def dial(
        self, sandbox_id: str, port: int, *, carry: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port inside a running sandbox; 49983 is its agent.

        Args:
            sandbox_id: which.
            port: inside.
            carry: the name to :meth:`carry_on` by after a snapshot; empty for none.

        Raises:
            SandboxNotFound: it does not run.
            Unavailable: nothing listens at the port.
        """
        sandbox = self._context.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandbox.steady.wait()
        if sandbox is None or not sandbox.is_running:
            raise SandboxNotFound(f"sandbox {sandbox_id!r} was not found")
        record = sandbox.record
        if record.agent is None:
            raise SandboxNotFound(f"sandbox {sandbox_id!r} was not found")
        return await self._context.parts.dial(record.agent, record.token, port, carry=carry)

    def is_held(self, sandbox_id: str) -> bool:
        """Whether a sandbox is being saved, so that connections to it end for a moment."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        return sandbox is not None and not sandbox.steady.is_set()

    async def carry_on(
        self, sandbox_id: str, carry: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Continue a connection once its sandbox is not held any more; None if it was over."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        if sandbox is None:
            return None
        await sandbox.steady.wait()
        record = sandbox.record
        if not sandbox.is_running or record.agent is None:
            return None
        return await self._context.parts.carry_on(record.agent, record.token, carry)

    def hold(self, sandbox_id: str, abort: Callable[[], None]) -> Callable[[], None]:
        """Have a connection cut when the sandbox ends; returns what to call when it is over."""
        sandbox = self._context.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.is_running:
            raise SandboxNotFound(f"sandbox {sandbox_id!r} was not found")
        streams = sandbox.streams
        streams.add(abort)
        return lambda: streams.discard(abort)

    # Images.

    async def remove_image(self, reference: str) -> None:
        """Remove an image that no sandbox stands on."""
        async with self._context.gate.alone():
            await self.images.remove(reference, in_use=self.images_in_use())

    async def prune_images(self) -> Pruned:
        """Remove all images that no sandbox stands on, and the kept layers of builds."""
        async with self._context.gate.alone():
            await asyncio.to_thread(_remove_layers, self._context.paths.data / "build")
            await self._warm.prune()
            return await self.images.prune(in_use=self.images_in_use())
