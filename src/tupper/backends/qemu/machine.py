"""A QEMU that runs, with its relay.

Two processes of the host make a machine: QEMU, and the relay that leads to the agent. Either one's
end is the machine's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tupper.backends.qemu import saving
from tupper.backends.qemu.control import connected
from tupper.backends.qemu.layout import CONTROL_NAME
from tupper.backends.qemu.reason import explain
from tupper.backends.qemu.remains import remains_of
from tupper.core import remains
from tupper.core.backend import Machine, MachineRecord, Snapshot, Usage
from tupper.core.errors import Unsupported
from tupper.core.lifecycle import ExitReason
from tupper.core.liveness import cpu_s, is_alive, wait_end
from tupper.protocol.connect import as_object

_FOLLOWS_S = 1.0


class QemuMachine(Machine):
    """One machine. See :class:`~tupper.core.backend.Machine`.

    Args:
        record: ``data`` holds ``directory`` (the sandbox's) and ``host_name`` as in the plan, which
            are enough to remove it; and, where the machine got so far, ``relay_pid``,
            ``relay_ticks``, ``memory_mib``, ``disk`` (image file), ``version`` (of QEMU) and
            ``saved`` (what a restore has to know).
    """

    def __init__(self, record: MachineRecord) -> None:
        self.record = record
        data = record.data
        host_name = str(data.get("host_name", ""))
        self._remains = remains_of(Path(str(data["directory"])), host_name)

    async def wait(self) -> ExitReason:
        """See the contract."""
        record = self.record
        ends = [wait_end(record.pid, record.start_ticks)]
        if relay := self._relay():
            ends.append(wait_end(*relay))
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # The other one follows within moments; the relay writes down the last words first.
            await asyncio.wait(tasks, timeout=_FOLLOWS_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return await asyncio.to_thread(self._explain)

    def _relay(self) -> tuple[int, int] | None:
        pid, ticks = self.record.data.get("relay_pid"), self.record.data.get("relay_ticks")
        if isinstance(pid, int) and isinstance(ticks, int) and pid:
            return pid, ticks
        return None

    def _explain(self) -> ExitReason:
        cgroup = self._remains.cgroup
        return explain(
            self._remains.console(),
            self._remains.last_words(),
            memory_mib=_whole(self.record.data.get("memory_mib")),
            was_oom_killed=cgroup is not None and cgroup.oom_kills() > 0,
        )

    async def stop(self, *, grace_s: float) -> None:
        """See the contract.

        The processes inside were asked by the agent before; this is the end, without a grace.
        """
        del grace_s
        await remains.stop(self.record, self._remains.remove)

    async def usage(self) -> Usage:
        """See the contract."""
        disk = remains.taken_bytes(str(self.record.data.get("disk", "")))
        if (cgroup := self._remains.cgroup) is not None:
            return Usage(cgroup.cpu_s(), cgroup.memory_bytes(), disk)
        return Usage(cpu_s(self.record.pid), _resident_bytes(self.record.pid), disk)

    async def pause(self) -> None:
        """See the contract."""
        await self._ask("stop")

    async def resume(self) -> None:
        """See the contract."""
        await self._ask("cont")

    async def _ask(self, command: str) -> None:
        async with connected(self._remains.layout.base, CONTROL_NAME) as control:
            await control.ask(command)

    async def snapshot(self, into: Path) -> Snapshot:
        """See the contract."""
        data = self.record.data
        saved = dict(as_object(data.get("saved")) or {})
        if saved.get("mounts"):
            raise Unsupported(self.record.backend, "a snapshot of a sandbox with mounts")
        disk = str(data.get("disk", ""))
        source = saving.Source(
            layout=self._remains.layout,
            pid=self.record.pid,
            memory_mib=_whole(data.get("memory_mib")),
            disk=Path(disk) if disk else None,
        )
        digests = await saving.save(source, into)
        facts: dict[str, object] = {**saved, "digests": digests}
        return Snapshot(into, self.record.backend, str(data.get("version", "")), facts)

    async def wake(self) -> None:
        """See the contract."""
        relay = self._relay()
        if relay is not None and is_alive(*relay):
            with contextlib.suppress(ProcessLookupError):
                os.kill(relay[0], signal.SIGUSR1)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
