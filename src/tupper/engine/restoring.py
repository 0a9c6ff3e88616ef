"""Starting sandboxes from saved machines: a new one from a snapshot, or a paused one again.

A restored agent still is who it was, with the token of then. It is told who it is now before
anybody else can reach it: its name, its token, the time, what the small files of ``/etc`` say.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tupper.core.backend import Backend, Capability, Machine, MachinePlan, Probe, Snapshot
from tupper.core.errors import ImageNotFound, Unsupported
from tupper.core.ids import new_token
from tupper.core.lifecycle import OnTimeout, State
from tupper.core.log import problem
from tupper.core.sandbox import CreateRequest, PortRequest, SandboxRecord
from tupper.core.snapshot import Saved
from tupper.engine.context import Context
from tupper.engine.creation import (
    AGENT_STARTS_S,
    Creation,
    etc_files,
    hostname_of,
    later,
    remove_tree,
)
from tupper.engine.parts import AgentClient
from tupper.engine.sandbox import OK, Sandbox
from tupper.engine.saving import SAVED, changed_texts

_SEED_BYTES = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """A saved machine.

    Args:
        directory: where its files are.
        saved: what is known of it; asked for once all else is ready, because a fork's machine is
            saved meanwhile.
    """

    directory: Path
    saved: Callable[[], Awaitable[Saved]]


class Revival(Creation):
    """The making of a new sandbox from a saved machine.

    Args:
        context: of the engine.
        sandbox: with its record as it was reserved.
        request: what it shall be.
        origin: the saved machine.
        backend: that saved it.
        rootfs_digest: what it stands on.
    """

    done = "sandbox.restored"

    def __init__(
        self,
        context: Context,
        sandbox: Sandbox,
        request: CreateRequest,
        origin: Origin,
        *,
        backend: str,
        rootfs_digest: str,
    ) -> None:
        super().__init__(context, sandbox, request)
        self._origin = origin
        self._backend = backend
        self._digest = rootfs_digest
        self._saved = Saved("")
        self._is_another = True
        self._is_cold = False

    async def _choose(self) -> Probe:
        """No choice: who saved it restores it."""
        backend = self._context.parts.backends.get(self._backend)
        if backend is None:
            raise Unsupported(self._backend, "restore", "it is not installed")
        probe = await backend.probe()
        if Capability.RESTORE not in probe.capabilities:
            raise Unsupported(self._backend, "restore", probe.reason)
        self._sandbox.change(
            backend=probe.backend,
            isolation=str(probe.isolation or ""),
            mechanism=probe.mechanism,
            kernel=probe.kernel,
        )
        return probe

    async def _find_rootfs(self) -> None:
        rootfs = await self._context.parts.images.lookup(self._digest)
        if rootfs is None:
            raise ImageNotFound("the image that the saved sandbox stands on is gone from the store")
        self._rootfs = rootfs
        self._sandbox.change(rootfs_digest=rootfs.digest)
        self._saved = await self._origin.saved()

    async def _boot(self, backend: Backend, plan: MachinePlan) -> Machine:
        saved = self._saved
        binary = self._context.binaries.find(saved.agent)
        self._sandbox.change(agent_digest=saved.agent)
        snapshot = Snapshot(self._origin.directory, saved.backend, saved.version, saved.data)
        cold = not saved.memory or self._is_cold
        return await backend.restore(snapshot, replace(plan, agent_binary=binary, cold=cold))

    async def _launch(self) -> None:
        """What the template starts runs already."""

    def _first_token(self) -> str:
        return self._saved.token

    async def _introduce(self, client: AgentClient) -> None:
        record, saved = self._sandbox.record, self._saved
        hostname = hostname_of(record)
        wrong = await client.identity(
            sandbox_id=record.id,
            token=record.token,
            hostname=hostname if hostname != saved.hostname else "",
            machine_id=secrets.token_hex(16) if self._is_another else "",
            seed=secrets.token_bytes(_SEED_BYTES),
            deadline_unix_s=self._provisional_deadline(),
            texts=changed_texts(saved.texts, etc_files(hostname, self._attachment)),
        )
        if wrong:
            problem("identity.incomplete", sandbox=record.id, message="; ".join(wrong)[:500])
        if self._request.env:
            await client.add_env(self._request.env)

    def _provisional_deadline(self) -> float:
        """Corrected once it runs; until then it may not outlive a failure by much."""
        return self._deadline_in(self._sandbox.record.timeout_s)

    def _deadline_in(self, life_s: float | None) -> float:
        pauses = self._sandbox.record.on_timeout is OnTimeout.PAUSE
        return 0.0 if life_s is None or pauses else time.time() + AGENT_STARTS_S + life_s


class Resumption(Revival):
    """A paused sandbox runs again. On failure it is paused as before.

    Args:
        context: of the engine.
        sandbox: a paused one; its lock is held.
        timeout_s: how long it lives from then; None for no end.
        cold: whether it boots from its files although its memory was saved.
    """

    done = "sandbox.resumed"

    def __init__(
        self, context: Context, sandbox: Sandbox, timeout_s: float | None, *, cold: bool = False
    ) -> None:
        record = sandbox.record
        saved = record.saved or Saved("")
        ports = tuple(PortRequest(guest, host) for guest, host in record.ports.items())

        async def known() -> Saved:
            return saved

        super().__init__(
            context,
            sandbox,
            CreateRequest(ports=ports),
            Origin(context.directory(sandbox.id) / SAVED, known),
            backend=saved.backend,
            rootfs_digest=saved.rootfs_digest,
        )
        self._paused = record
        self._life_s = timeout_s
        self._is_another = False
        self._is_cold = cold
        sandbox.change(doing="resume", boot_id=context.boot_id)

    async def _remember(self) -> None:
        await self._context.store.save(self._sandbox.record)

    async def _make_directory(self, undo: AsyncExitStack) -> None:
        directory = self._context.directory(self._sandbox.id)
        disk = directory / "disk.img"
        later(undo, remove_tree, directory / "machine")
        undo.callback(disk.unlink, missing_ok=True)
        disk.unlink(missing_ok=True)
        await remove_tree(directory / "machine")
        await self._context.parts.make_disk(disk, self._sandbox.record.disk_mib)

    def _provisional_deadline(self) -> float:
        return self._deadline_in(self._life_s)

    async def _be_running(self) -> None:
        """From the moment that this is on record it runs, and what was saved is history."""
        now = round(time.time(), 6)
        self._sandbox.change(
            state=State.RUNNING,
            started_at=now,
            deadline=None if self._life_s is None else now + self._life_s,
            doing="",
            saved=None,
            paused_at=0.0,
        )
        await self._context.store.save(self._sandbox.record)
        self._sandbox.health = OK

    async def _mark_failed(self, kind: object, error: BaseException | None, trace: object) -> None:
        """The last undo: paused as before."""
        del kind, trace
        self._sandbox.client = None
        self._sandbox.machine = None
        self._sandbox.record = self._paused
        await self._context.save_end(self._paused)
        problem("resume.failed", sandbox=self._sandbox.id, message=str(error)[:500])


def inherit(record: SandboxRecord, source: SandboxRecord) -> SandboxRecord:
    """A fork's record takes over what its source is and may do."""
    return replace(
        record,
        template=source.template,
        image=source.image,
        metadata=dict(source.metadata),
        cpus=source.cpus,
        memory_mib=source.memory_mib,
        disk_mib=source.disk_mib,
        pids=source.pids,
        allow_internet=source.allow_internet,
        allow_out=source.allow_out,
        deny_out=source.deny_out,
        allow_host_ports=source.allow_host_ports,
        on_timeout=source.on_timeout,
        pause_memory=source.pause_memory,
        auto_resume=source.auto_resume,
        owner_key=source.owner_key,
        ingress=source.ingress,
        traffic_token="" if source.ingress.is_public else new_token(),
    )


def has_room(directory: Path, size_bytes: int, least_mib: int) -> bool:
    """Whether so much can be written there, with some to spare."""
    return shutil.disk_usage(directory).free >= size_bytes + (least_mib << 20)
