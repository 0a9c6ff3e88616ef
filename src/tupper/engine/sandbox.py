"""A living sandbox as this process holds it: its record, and what is open for it here.

Nothing in here is needed by the sandbox itself: when this process ends, the sandbox goes on and
the next process makes this object again from the record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tupper.core.backend import Machine
from tupper.core.errors import MachineUnreachable
from tupper.core.lifecycle import State
from tupper.core.sandbox import SandboxRecord
from tupper.engine.metrics import Sample
from tupper.engine.parts import AgentClient, Forward

OK = "ok"
UNREACHABLE = "unreachable"
_SAMPLES = 480


class Sandbox:
    """One sandbox.

    Args:
        record: its record; replaced, never changed.

    Attributes:
        lock: held by whoever changes its life: deadlines against ``set_timeout`` against kill.
        creation: the task that makes it, while it does.
        ending: the task that ends it, once one does.
        tasks: watchers, cancelled when it ends or we leave.
        streams: aborts of connections that go through us.
        forwards: guest port → listener.
        samples: of metrics, the oldest first.
        steady: set but while its agent is held, for a moment, around a snapshot.
        metrics_wanted_at: loop time of the last question for metrics; 0 for none.
    """

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.lock = asyncio.Lock()
        self.machine: Machine | None = None
        self.client: AgentClient | None = None
        self.creation: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.streams: set[Callable[[], None]] = set()
        self.forwards: dict[int, Forward] = {}
        self.samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self.sampler: asyncio.Task[None] | None = None
        self.metrics_wanted_at = 0.0
        self.health = OK
        self.steady = asyncio.Event()
        self.steady.set()

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def is_running(self) -> bool:
        """Whether it is a user's, ready, and nobody ends it."""
        ready = self.record.state is State.RUNNING and not self.record.purpose
        return ready and self.ending is None

    @property
    def is_paused(self) -> bool:
        """Whether it lies on disk, and nobody ends it."""
        return self.record.state is State.PAUSED and self.ending is None

    @property
    def agent(self) -> AgentClient:
        """The client of its agent.

        Raises:
            MachineUnreachable: it has none yet.
        """
        if self.client is None:
            raise MachineUnreachable(f"the agent of sandbox {self.id} is not known yet")
        return self.client

    def change(self, **changes: object) -> SandboxRecord:
        """Replace fields of the record; returns the new one."""
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]
        return self.record

    def cancel_creation(self) -> None:
        """Cancel the task that makes it, once: its undo must not be disturbed."""
        if self.creation is not None and not self.creation.cancelling():
            self.creation.cancel()

    def abort_streams(self) -> None:
        """Cut all connections that go through us."""
        for abort in list(self.streams):
            abort()
        self.streams.clear()
