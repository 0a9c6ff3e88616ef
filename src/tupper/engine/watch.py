"""What ends a sandbox without its user: its machine's end, its owner's end, a deadline, idleness.

Nothing here polls. The machine and the owner are waited for; deadlines are in one heap; the agent
is asked for its last activity only when the sandbox could be idle for long enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from tupper.core.errors import TupperError
from tupper.core.lifecycle import EndReason, ExitReason, OnTimeout
from tupper.core.liveness import start_ticks, wait_end
from tupper.core.log import problem
from tupper.core.sandbox import SandboxRecord
from tupper.engine.context import Context
from tupper.engine.deadlines import Deadlines
from tupper.engine.ending import begin_end
from tupper.engine.sandbox import Sandbox

Kind = Literal["timeout", "idle"]
_ANSWER_S = 5.0
_RETRY_S = 15.0
_PAUSE_AGAIN_S = 30.0


class Watch:
    """Watches all sandboxes of an engine.

    Args:
        context: of the engine.
        pause: pauses a sandbox whose time is over, where that was asked for.
    """

    def __init__(self, context: Context, pause: Callable[[Sandbox, Kind], Awaitable[None]]) -> None:
        self._context = context
        self._pause = pause
        self._deadlines: Deadlines[tuple[str, Kind]] = Deadlines(self._due)

    def begin(self, sandbox: Sandbox) -> None:
        """Watch a sandbox that is running."""
        self._context.spawn(self._machine(sandbox), f"machine {sandbox.id}", of=sandbox)
        if sandbox.record.owner_pid:
            self._context.spawn(self._owner(sandbox), f"owner {sandbox.id}", of=sandbox)
        self.reschedule(sandbox)
        self.reschedule_idle(sandbox, time.time())

    def reschedule(self, sandbox: Sandbox) -> None:
        """Its deadline has changed."""
        self._deadlines.set((sandbox.id, "timeout"), sandbox.record.deadline)
        self._context.spawn(self._tell(sandbox), f"tell {sandbox.id}", of=sandbox)

    def reschedule_idle(self, sandbox: Sandbox, active_at: float) -> None:
        """Its idle timeout has changed, or it was active at this time."""
        idle_s = sandbox.record.idle_timeout_s
        self._deadlines.set((sandbox.id, "idle"), None if idle_s is None else active_at + idle_s)

    def forget(self, sandbox: Sandbox) -> None:
        """It has ended."""
        self._deadlines.set((sandbox.id, "timeout"), None)
        self._deadlines.set((sandbox.id, "idle"), None)

    def close(self) -> None:
        """Stop watching."""
        self._deadlines.close()

    async def _machine(self, sandbox: Sandbox) -> None:
        if sandbox.machine is not None:
            reason = await sandbox.machine.wait()
            await self._end(sandbox, reason)

    async def _owner(self, sandbox: Sandbox) -> None:
        record = sandbox.record
        await wait_end(record.owner_pid, record.owner_start_ticks)
        detail = f"process {record.owner_pid}, which it was bound to, is gone"
        await self._end(sandbox, ExitReason(EndReason.OWNER_GONE, detail))

    async def _tell(self, sandbox: Sandbox) -> None:
        """Tell the agent too. It ends the sandbox a minute later if nobody else did."""
        with contextlib.suppress(TupperError, OSError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                await sandbox.agent.deadline(agent_deadline(sandbox.record))

    async def _end(self, sandbox: Sandbox, reason: ExitReason) -> None:
        # The task that runs this is one that the end cancels: so it does not wait for it.
        async with sandbox.lock:
            begin_end(self._context, sandbox, reason)

    def _due(self, key: tuple[str, Kind]) -> None:
        sandbox = self._context.sandboxes.get(key[0])
        if sandbox is None:
            return
        check = self._check_deadline if key[1] == "timeout" else self._check_idle
        self._context.spawn(check(sandbox), f"{key[1]} {sandbox.id}", of=sandbox)

    async def _check_deadline(self, sandbox: Sandbox) -> None:
        async with sandbox.lock:
            deadline = sandbox.record.deadline
            if sandbox.ending is not None or deadline is None:
                return
            if deadline > time.time():  # it was prolonged while we waited for the lock
                self._deadlines.set((sandbox.id, "timeout"), deadline)
                return
            if sandbox.record.on_timeout is OnTimeout.KILL:
                reason = ExitReason(EndReason.TIMEOUT, "its time was over")
                begin_end(self._context, sandbox, reason)
                return
        self._begin_pause(sandbox, "timeout")

    def _begin_pause(self, sandbox: Sandbox, kind: Kind) -> None:
        """Pause it in a task that is not one of its own, which a pause ends."""

        async def work() -> None:
            try:
                await self._pause(sandbox, kind)
            except (TupperError, OSError) as error:
                # It was not to end, so it does not: it is tried again.
                problem("pause.failed", sandbox=sandbox.id, message=str(error))
                if sandbox.is_running:
                    self._deadlines.set((sandbox.id, kind), time.time() + _PAUSE_AGAIN_S)

        self._context.spawn(work(), f"pause {sandbox.id}")

    async def _check_idle(self, sandbox: Sandbox) -> None:
        active_at = await self._last_activity(sandbox)
        async with sandbox.lock:
            idle_s, now = sandbox.record.idle_timeout_s, time.time()
            if sandbox.ending is not None or idle_s is None:
                return
            if active_at is None:  # no answer is no proof of idleness
                self._deadlines.set((sandbox.id, "idle"), now + min(idle_s, _RETRY_S))
            elif active_at + idle_s > now:
                self.reschedule_idle(sandbox, active_at)
            elif sandbox.record.on_timeout is OnTimeout.PAUSE:
                self._begin_pause(sandbox, "idle")
            else:
                reason = ExitReason(EndReason.IDLE_TIMEOUT, f"no activity for {idle_s:g} s")
                begin_end(self._context, sandbox, reason)

    async def _last_activity(self, sandbox: Sandbox) -> float | None:
        """When the agent last saw activity, unix seconds; never in the future."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                status = await sandbox.agent.status()
        except (TupperError, OSError, TimeoutError):
            return None
        streams = status.get("activeStreams")
        if isinstance(streams, int) and streams > 0:
            return time.time()  # somebody listens to a command: that is not idle
        value = status.get("lastActivity")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return min(float(value) / 1000, time.time())


def agent_deadline(record: SandboxRecord) -> float:
    """What the agent is told: it would end a sandbox, so nothing if that is to be paused."""
    return 0.0 if record.on_timeout is OnTimeout.PAUSE else record.deadline or 0.0


def owner_of(pid: int, ticks: int) -> tuple[int, int] | None:
    """The identity of an owner process that lives; None if it is gone already."""
    have = start_ticks(pid)
    if have is None or ticks not in (0, have):
        return None
    return pid, have
