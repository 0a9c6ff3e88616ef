"""A gVisor sandbox that runs, and what is left of one.

A machine is two host processes, the sandbox (the guest's kernel) and the gofer (its files), and
some helpers that die with them. All are in one control group. ``runsc kill`` and ``delete`` take
up to two seconds; SIGKILL to the group and removing the files ourselves takes some milliseconds
and leaves nothing, because each machine has a state directory of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tupper.backends.gvisor import guard, linux, relief, saving, spare
from tupper.backends.gvisor.bundle import AGENT_PATH, Layout
from tupper.core import kernel, log, remains
from tupper.core.backend import Machine, MachineRecord, Snapshot, Usage
from tupper.core.cgroup import Cgroup
from tupper.core.errors import MachineFailed, TupperError, Unsupported
from tupper.core.lifecycle import EndReason, ExitReason
from tupper.core.liveness import cpu_s, find_carrying, is_alive, kill_all, start_ticks, wait_end
from tupper.core.process import run
from tupper.core.userns import remove_tree

_CALL_TIMEOUT_S = 10.0
# What gVisor itself needs on top of what the guest may use.
HEADROOM_MIB = 64
ENTER = ("nsenter", "--preserve-credentials", "-U", "-n", "-m")


@dataclass(frozen=True, slots=True)
class Remains:
    """Everything that a machine has on the host, dead or alive.

    Args:
        layout: its files.
        cgroup: None where the host gives us none.
    """

    layout: Layout
    cgroup: Cgroup | None

    async def remove(self) -> None:
        """End all processes and remove all traces. Idempotent.

        Raises:
            MachineFailed: something could not be removed; the first cause is in the text.
        """
        steps: list[Callable[[], object]] = [
            # An ordinary user's went with the holder, or goes with the network.
            lambda: os.geteuid() or kernel.unmount(self.layout.run),
            lambda: remains.remove_group(self.cgroup),
            lambda: remove_tree(self.layout.base),
        ]
        await remains.remove("gvisor", kill=self._kill(), steps=steps)

    async def _kill(self) -> bool:
        if self.cgroup is not None:
            return await self.cgroup.kill(timeout_s=remains.KILL_TIMEOUT_S)
        found = partial(find_processes, self.layout.state)
        return await kill_all(found, timeout_s=remains.KILL_TIMEOUT_S)

    def holder(self) -> int:
        """The process that holds an ordinary user's namespaces, if it lives; else 0."""
        with contextlib.suppress(OSError, ValueError):
            pid, ticks = map(int, self.layout.holder.read_text().split())
            return pid if is_alive(pid, ticks) else 0
        return 0

    def seen(self, path: Path) -> Path:
        """Where the engine finds what the machine's namespaces have at ``path``."""
        holder = self.holder()
        return Path(f"/proc/{holder}/root{path}") if holder else path

    def last_words(self) -> str:
        """What runsc, gVisor and the agent said last; at most 64 KiB."""
        files = (self.layout.panic, self.layout.output)
        said = [remains.tail(self.seen(path)).strip("\0\n ") for path in files]
        return "\n".join(text for text in said if text)[-remains.LAST_WORDS_BYTES :]


def find_processes(state: Path) -> set[int]:
    """The living processes that were started with this state directory."""
    return find_carrying(f"--root={state}", file="cmdline")


class GVisorMachine(Machine):
    """One sandbox. See :class:`~tupper.core.backend.Machine`.

    Args:
        record: ``data`` holds ``directory`` (the sandbox's) and ``host_name`` as in the plan, which
            are enough to remove it; and, where the machine got so far, ``gofer_pid``,
            ``gofer_ticks``, ``memory_mib``, ``disk`` (image file or empty), ``runsc``, ``version``
            and ``platform`` (of that), and ``saves``: whether it can be saved.
    """

    def __init__(self, record: MachineRecord) -> None:
        self.record = record
        data = record.data
        self._remains = remains_of(Path(str(data["directory"])), str(data.get("host_name", "")))
        self._verdict: ExitReason | None = None

    async def wait(self) -> ExitReason:
        """See the contract."""
        watcher = asyncio.create_task(self._watch_memory())
        try:
            return await self._wait()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _watch_memory(self) -> None:
        limit = _whole(self.record.data.get("memory_mib"))
        if self._remains.cgroup is not None and limit:
            await relief.relieve(self._remains.cgroup, (limit + HEADROOM_MIB) << 20)
        elif os.geteuid() != 0:
            await self._guard()

    async def _guard(self) -> None:
        """End the machine if it takes too much; nobody else limits an ordinary user's."""
        data, record = self.record.data, self.record
        memory_mib, disk_mib = _whole(data.get("memory_mib")), _whole(data.get("disk_mib"))
        if not memory_mib or not disk_mib:
            return
        reason = await guard.watch(
            record.pid,
            self._remains.layout.disk,
            memory_bytes=(memory_mib + HEADROOM_MIB) << 20,
            disk_bytes=disk_mib << 20,
        )
        what = {
            EndReason.OUT_OF_MEMORY: f"{memory_mib} MiB memory",
            EndReason.OUT_OF_DISK: f"{disk_mib} MiB disk",
        }[reason]
        words = self._remains.last_words()
        self._verdict = ExitReason(reason, f"the sandbox used all of its {what}", words)
        if is_alive(record.pid, record.start_ticks):
            os.kill(record.pid, signal.SIGKILL)

    async def _wait(self) -> ExitReason:
        gofer = self._gofer_fd()
        try:
            status = await _wait_status(self.record.pid, self.record.start_ticks)
            files = None if gofer is None else await _gofer_status(*gofer)
        finally:
            if gofer is not None:
                os.close(gofer[1])
        return self._explain(status, files)

    def _gofer_fd(self) -> tuple[int, int] | None:
        pid, ticks = self.record.data.get("gofer_pid"), self.record.data.get("gofer_ticks")
        if not isinstance(pid, int) or not isinstance(ticks, int):
            return None
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            if is_alive(pid, ticks):
                return pid, fd
            os.close(fd)
        return None

    def _explain(self, kernel: int | None, files: int | None) -> ExitReason:
        """Tell the causes apart by how gVisor's two processes ended (wait statuses)."""
        if self._verdict is not None:
            return self._verdict
        words = self._remains.last_words()
        signals = [os.WTERMSIG(s) for s in (kernel, files) if s is not None and os.WIFSIGNALED(s)]
        cgroup = self._remains.cgroup
        if cgroup is not None and cgroup.oom_kills() and (signals or kernel is None):
            detail = f"the sandbox used all of its {self.record.data.get('memory_mib')} MiB memory"
            return ExitReason(EndReason.OUT_OF_MEMORY, detail, words)
        if signals:
            detail = f"gVisor was ended from outside by {signal.Signals(signals[0]).name}"
            return ExitReason(EndReason.MACHINE_DIED, detail, words)
        if kernel is None:
            return ExitReason(EndReason.MACHINE_DIED, "gVisor is gone", words)
        code = os.waitstatus_to_exitcode(kernel)
        how = f"was ended by signal {code - 128}" if code > 128 else f"ended with status {code}"
        return ExitReason(EndReason.AGENT_DIED, f"the agent {how}", words)

    async def stop(self, *, grace_s: float) -> None:
        """See the contract.

        The processes inside were asked by the agent before; this is the end, without a grace.
        """
        del grace_s
        await remains.stop(self.record, self._remains.remove)

    def agent_answered(self) -> None:
        """See the contract: spare the agent when memory runs out.

        gVisor runs each address space inside in a host process of its own. All of them start with
        a score that offers them before gVisor itself; the agent's, now the only one in use, gets
        gVisor's score instead, so that the host's kernel takes a command and never the agent.
        """
        if self._remains.cgroup is not None:
            spare.spare_largest(self._remains.cgroup.pids(), but=self._own_pids())

    def _own_pids(self) -> set[int]:
        return {self.record.pid, _whole(self.record.data.get("gofer_pid"))}

    async def usage(self) -> Usage:
        """See the contract."""
        cgroup = self._remains.cgroup
        disk = remains.taken_bytes(str(self.record.data.get("disk", "")))
        if os.geteuid() != 0:
            use = guard.measure(self.record.pid, self._remains.layout.disk)
            return Usage(cpu_s(self.record.pid), use.memory_bytes, use.disk_bytes)
        if cgroup is None:
            return Usage(disk_bytes=disk)
        return Usage(cgroup.cpu_s(), cgroup.memory_bytes(), disk)

    async def pause(self) -> None:
        """See the contract."""
        await self._call("pause")

    async def resume(self) -> None:
        """See the contract."""
        await self._call("resume")

    async def snapshot(self, into: Path) -> Snapshot:
        """See the contract."""
        data = self.record.data
        if data.get("saves") is not True:
            raise Unsupported(self.record.backend, "snapshot", "of a sandbox with this runsc")
        layout, runsc = self._remains.layout, str(data["runsc"])
        await saving.save(self._prefix(), runsc, layout, self.record.sandbox_id, into)
        facts = {"platform": str(data["platform"])}
        return Snapshot(into, self.record.backend, str(data["version"]), facts)

    async def wake(self) -> None:
        """See the contract."""
        base = self._remains.seen(self._remains.layout.base)
        await asyncio.to_thread(saving.leave_release, Layout(base))

    async def name_guest(self, old: str, new: str) -> None:
        """Change the guest's hostname, for which its agent lacks the privilege.

        A guest that cannot be told, because its table of processes is full, keeps the old one.
        """
        if old != new:
            await self._as_host("hostname", new)

    async def show_boot(self, boot_id: str) -> None:
        """Have the guest see another boot. One that cannot be told sees the old one."""
        await self._as_host("boot-id", boot_id)

    async def _as_host(self, *words: str) -> None:
        """Run the agent's program inside with a privilege that nothing else inside has."""
        state = f"--root={self._remains.layout.state}"
        verb = ["exec", "--cap=CAP_SYS_ADMIN", self.record.sandbox_id, AGENT_PATH, *words]
        try:
            argv = [*self._prefix(), str(self.record.data["runsc"]), state, *verb]
            await run(argv, timeout_s=_CALL_TIMEOUT_S)
        except TupperError as error:
            name = self.record.sandbox_id
            log.problem("guest.not_told", sandbox=name, what=words[0], message=error.message[:300])

    def _prefix(self) -> list[str]:
        """What leads a command into an ordinary user's namespaces."""
        holder = self._remains.holder()
        return [*ENTER, "-t", str(holder), "--"] if holder else []

    async def _call(self, verb: str) -> None:
        layout = self._remains.layout
        argv = [*self._prefix(), str(self.record.data["runsc"]), f"--root={layout.state}", verb]
        try:
            await run([*argv, self.record.sandbox_id], timeout_s=_CALL_TIMEOUT_S)
        except TupperError as error:
            raise MachineFailed(f"gvisor could not {verb} the sandbox: {error.message}") from error


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def remains_of(directory: Path, host_name: str) -> Remains:
    """What a machine with these names has, or would have, on the host."""
    return Remains(Layout(directory / "machine"), remains.find_group(host_name))


async def _gofer_status(pid: int, fd: int) -> int | None:
    """How the gofer ended; it follows the kernel within moments, if it was not the first."""
    ticks = start_ticks(pid)
    if ticks is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wait_end(pid, ticks), 1.0)
    return linux.exit_status(pid, fd)


async def _wait_status(pid: int, ticks: int) -> int | None:
    """Wait for the end of a process; its wait status where the kernel still knows it."""
    try:
        fd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return None
    try:
        await wait_end(pid, ticks)
        return linux.exit_status(pid, fd)
    finally:
        os.close(fd)
