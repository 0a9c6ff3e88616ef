"""What the parts of the engine share: settings, store, the layers below, and what lives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from tupper.core.errors import TupperError
from tupper.core.liveness import boot_id
from tupper.core.log import problem
from tupper.core.paths import Paths
from tupper.core.sandbox import SandboxRecord
from tupper.core.settings import Settings
from tupper.core.snapshot import SnapshotRecord
from tupper.engine.binaries import Binaries
from tupper.engine.events import Events
from tupper.engine.gate import Gate
from tupper.engine.parts import Parts
from tupper.engine.sandbox import Sandbox
from tupper.engine.secrets import Secrets
from tupper.engine.store import Store
from tupper.engine.trust import Trust
from tupper.engine.volumes import Volumes

SAVE_AGAIN_S = 5.0


@dataclass(slots=True)
class Context:
    """One engine's world.

    Args:
        paths, settings: as given.
        store: what is remembered.
        parts: the layers below.
        sandboxes: all that have not ended, by id.
        gate: keeps images from being removed while a sandbox is on its way to use them.
        trust: the host's added certificate authorities.
        volumes, secrets: what outlives sandboxes.
        events: tells of what happens to sandboxes.
        boot_id: of the host.
        kept: all snapshots, by id.
        snapshot_uses: how many sandboxes are being started from a snapshot.
    """

    paths: Paths
    settings: Settings
    store: Store
    parts: Parts
    sandboxes: dict[str, Sandbox] = field(default_factory=dict[str, Sandbox])
    gate: Gate = field(default_factory=Gate)
    trust: Trust = field(default_factory=Trust)
    events: Events = field(default_factory=Events)
    volumes: Volumes = field(init=False)
    secrets: Secrets = field(init=False)
    boot_id: str = field(default_factory=boot_id)
    kept: dict[str, SnapshotRecord] = field(default_factory=dict[str, SnapshotRecord])
    snapshot_uses: dict[str, int] = field(default_factory=dict[str, int])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _binaries: Binaries | None = None

    @property
    def binaries(self) -> Binaries:
        """Copies of the agent's binary."""
        if self._binaries is None:
            self._binaries = Binaries(self.paths.data / "agents")
        return self._binaries

    @property
    def snapshots(self) -> Path:
        """Where snapshots are."""
        return self.paths.data / "snapshots"

    def awake(self) -> list[Sandbox]:
        """All that have a machine, or are getting one."""
        return [s for s in self.sandboxes.values() if not s.is_paused]

    def __post_init__(self) -> None:
        self.volumes = Volumes(self.paths.data / "volumes", self.store)
        self.secrets = Secrets(self.store)

    def directory(self, sandbox_id: str) -> Path:
        """A sandbox's own directory."""
        return self.paths.data / "sandboxes" / sandbox_id

    def socket(self, sandbox_id: str) -> Path:
        """Where its agent's socket is moved to."""
        return self.paths.runtime / "s" / f"{sandbox_id}.sock"

    def host_name(self, sandbox_id: str) -> str:
        """Its name among host-wide things."""
        return f"tupper-{self.store.engine_id}-{sandbox_id}"

    async def save_end(self, record: SandboxRecord) -> None:
        """Remember a sandbox's end; if the store cannot, such as on a full disk, again later.

        What has ended is gone from the host whether or not that can be written down. Until it is,
        its name stays taken.
        """
        try:
            await self.store.save(record)
        except (TupperError, OSError) as error:
            problem("end.not_saved", sandbox=record.id, message=str(error))
            self.spawn(self._save_again(record), f"save {record.id}")

    async def _save_again(self, record: SandboxRecord) -> None:
        while True:
            await asyncio.sleep(SAVE_AGAIN_S)
            with contextlib.suppress(TupperError, OSError):
                return await self.store.save(record)

    def spawn(
        self, coroutine: Coroutine[object, object, None], name: str, *, of: Sandbox | None = None
    ) -> asyncio.Task[None]:
        """Run a task that the engine (or a sandbox) owns; its failure is logged."""
        owner = self.tasks if of is None else of.tasks
        task = asyncio.get_running_loop().create_task(_supervise(coroutine, name), name=name)
        owner.add(task)
        task.add_done_callback(owner.discard)
        return task


async def _supervise(coroutine: Coroutine[object, object, None], name: str) -> None:
    try:
        await coroutine
    except (TupperError, OSError) as error:
        problem("task.failed", task=name, error=type(error).__name__, message=str(error))
    except Exception as error:  # noqa: BLE001 - the task supervisor is one of the four edges
        problem("task.crashed", task=name, error=type(error).__name__, message=str(error))
