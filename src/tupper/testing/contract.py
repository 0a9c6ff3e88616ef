"""What every backend must do, as tests.

A backend's own tests subclass :class:`BackendContract` and say how to make the backend and a plan;
pytest does the rest::

    class TestMyBackend(BackendContract):
        def make_backend(self, data_dir: Path) -> Backend: ...
        def make_plan(self, directory: Path, sandbox_id: str) -> MachinePlan: ...

The tests start real machines with the real agent. After each of them nothing that carries the
sandbox's id may be left on the host: no process, mount, loop device, network namespace or control
group, and no file but those that the plan came with.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tupper.core.backend import (
    AgentAddress,
    Backend,
    Capability,
    Machine,
    MachinePlan,
    MachineRecord,
    Mount,
    Probe,
    Snapshot,
)
from tupper.core.errors import InvalidArgument, TupperError, Unsupported
from tupper.core.ids import new_sandbox_id
from tupper.core.lifecycle import EndReason, ExitReason
from tupper.core.liveness import is_alive

_ANSWER_S = 30.0
_END_S = 15.0
_GONE_S = 5.0


async def agent_answers(address: AgentAddress, *, timeout_s: float = _ANSWER_S) -> bool:
    """Whether an agent says that it is well, asked again until the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                return await _ask(address)
        await asyncio.sleep(0.005)
    return False


async def _ask(address: AgentAddress) -> bool:
    if address.kind == "tcp":
        reader, writer = await asyncio.open_connection(address.host, address.port)
    else:
        reader, writer = await asyncio.open_unix_connection(address.path)
    try:
        if address.kind == "vsock":
            writer.write(f"CONNECT {address.port}\n".encode())
            await reader.readline()
        writer.write(b"GET /health HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
        status = await reader.readline()
        if not status:
            raise ConnectionResetError
        return status.split()[1] in (b"200", b"204")
    finally:
        writer.close()


def traces(plan: MachinePlan) -> set[str]:
    """Everything on this host that carries the sandbox's id, but for the plan's own files."""
    found = {f"file {path.name}" for path in plan.directory.iterdir() if path != plan.disk_image}
    found |= {f"process {pid}" for pid in _processes(plan.sandbox_id)}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if plan.sandbox_id in line:
            found.add(f"mount {line}")
    for pattern in ("/run/netns/*", "/sys/fs/cgroup/**/*", "/sys/block/loop*/loop/backing_file"):
        for path in _matching(pattern):
            if plan.sandbox_id in path.name or (
                path.name == "backing_file" and plan.sandbox_id in _read(path)
            ):
                found.add(str(path))
    return found


def _matching(pattern: str) -> list[Path]:
    while True:  # others on this host remove directories while we look into them
        with contextlib.suppress(FileNotFoundError):
            return list(Path("/").glob(pattern.lstrip("/")))


def _processes(word: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and word in _read(entry / "cmdline"):
            yield int(entry.name)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


async def assert_nothing_left(plan: MachinePlan) -> None:
    """No trace of the machine; the kernel may take a moment to free what its processes held."""
    deadline = time.monotonic() + _GONE_S
    while left := traces(plan):
        assert time.monotonic() < deadline, f"left on the host: {sorted(left)}"
        await asyncio.sleep(0.01)


async def end_of(machine: Machine) -> ExitReason:
    """The end of a machine, which must come soon."""
    return await asyncio.wait_for(machine.wait(), _END_S)


def through_json(record: MachineRecord) -> MachineRecord:
    """A record as the engine's store gives it back."""
    data: object = json.loads(json.dumps(dict(record.data)))
    assert isinstance(data, dict)
    return replace(record, data=data)


class BackendContract(abc.ABC):
    """The suite. Subclasses may add tests and fixtures of their own."""

    pytestmark: ClassVar = [pytest.mark.asyncio, pytest.mark.timeout(120)]

    @abc.abstractmethod
    def make_backend(self, data_dir: Path) -> Backend:
        """A backend that keeps its files below this directory."""

    @abc.abstractmethod
    def make_plan(self, directory: Path, sandbox_id: str) -> MachinePlan:
        """A plan for a small machine; ``directory`` exists and is the sandbox's own."""

    @pytest.fixture
    def home(self) -> Iterator[Path]:
        """A directory with a short name, because paths of sockets have a limit."""
        with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as name:
            yield Path(name)

    @pytest.fixture
    async def backend(self, home: Path) -> Backend:
        """The backend; the test is skipped where it cannot be used, with its own reason."""
        backend = self.make_backend(home / "data")
        probe = await backend.probe()
        if not probe.usable:
            pytest.skip(f"{backend.name}: {probe.reason}")
        return backend

    @pytest.fixture
    def plan(self, home: Path) -> MachinePlan:
        """A fresh plan."""
        sandbox_id = new_sandbox_id()
        directory = home / sandbox_id
        directory.mkdir(mode=0o700)
        return self.make_plan(directory, sandbox_id)

    async def test_probe_names_what_isolates(self, backend: Backend) -> None:
        """A usable probe says all that the selection and the user need."""
        probe = await backend.probe()
        assert probe.backend == backend.name
        assert probe.isolation is not None
        assert probe.mechanism
        assert probe.version
        assert await backend.probe() == probe

    async def test_life_of_a_machine(self, backend: Backend, plan: MachinePlan) -> None:
        """Start, answer, two waiters, stop, stop again, nothing left."""
        machine = await backend.start(plan)
        assert machine.record.backend == backend.name
        assert machine.record.sandbox_id == plan.sandbox_id
        assert is_alive(machine.record.pid, machine.record.start_ticks)
        assert await agent_answers(machine.agent)
        waiters = [asyncio.create_task(machine.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(waiter.done() for waiter in waiters)
        await machine.stop(grace_s=0)
        ends = await asyncio.wait_for(asyncio.gather(*waiters), _END_S)
        assert ends[0].reason == ends[1].reason
        assert not is_alive(machine.record.pid, machine.record.start_ticks)
        await assert_nothing_left(plan)
        await machine.stop(grace_s=0)

    async def test_adopted_machine_is_the_same(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """A backend object of another process finds the machine by its record alone."""
        record = through_json((await backend.start(plan)).record)
        machine = await self.make_backend(home / "data").adopt(record)
        try:
            assert await agent_answers(machine.agent)
            assert machine.record == record
        finally:
            await machine.stop(grace_s=0)
        await end_of(machine)
        await assert_nothing_left(plan)

    async def test_machine_killed_from_outside(self, backend: Backend, plan: MachinePlan) -> None:
        """The end is noticed and named, and the rest is removed."""
        machine = await backend.start(plan)
        assert await agent_answers(machine.agent)
        waiter = asyncio.create_task(machine.wait())
        await asyncio.sleep(0)
        os.kill(machine.record.pid, signal.SIGKILL)
        assert (await asyncio.wait_for(waiter, _END_S)).reason is EndReason.MACHINE_DIED
        await machine.stop(grace_s=0)
        await assert_nothing_left(plan)

    async def test_dead_machine_can_be_adopted(self, backend: Backend, plan: MachinePlan) -> None:
        """Its end is known at once, and ``stop`` removes what is left."""
        record = (await backend.start(plan)).record
        os.kill(record.pid, signal.SIGKILL)
        machine = await backend.adopt(through_json(record))
        await end_of(machine)
        await machine.stop(grace_s=0)
        await assert_nothing_left(plan)

    async def test_machine_without_a_record(self, backend: Backend, plan: MachinePlan) -> None:
        """The engine was killed between the start and writing the record down."""
        await backend.start(plan)
        names = {"directory": str(plan.directory), "host_name": plan.host_name}
        record = MachineRecord(backend.name, plan.sandbox_id, 0, 0, AgentAddress("unix"), names)
        machine = await backend.adopt(record)
        await end_of(machine)
        await machine.stop(grace_s=0)
        await assert_nothing_left(plan)

    async def test_pid_of_a_stranger_is_left_alone(
        self, backend: Backend, plan: MachinePlan
    ) -> None:
        """TB089: a record whose pid belongs to somebody else by now."""
        names = {"directory": str(plan.directory), "host_name": plan.host_name}
        record = MachineRecord(
            backend.name, plan.sandbox_id, os.getpid(), 1, AgentAddress("unix"), names
        )
        machine = await backend.adopt(record)
        await end_of(machine)
        await machine.stop(grace_s=0)  # we are the stranger, and go on
        await assert_nothing_left(plan)

    async def test_unknown_option_is_refused(self, backend: Backend, plan: MachinePlan) -> None:
        """With nothing left."""
        with pytest.raises(InvalidArgument, match="no_such_option"):
            await backend.start(replace(plan, options={"no_such_option": 1}))
        await assert_nothing_left(plan)

    async def test_tb089_failed_start_leaves_nothing(
        self, backend: Backend, plan: MachinePlan
    ) -> None:
        """And does not stand in the way of the next one of the same name."""
        broken = plan.directory / "agent"
        broken.write_text("this is no program")
        broken.chmod(0o755)
        with contextlib.suppress(TupperError):  # it may also be noticed as an early end
            machine = await backend.start(replace(plan, agent_binary=broken))
            await end_of(machine)
            await machine.stop(grace_s=0)
        broken.unlink()
        await assert_nothing_left(plan)
        machine = await backend.start(plan)
        try:
            assert await agent_answers(machine.agent)
        finally:
            await machine.stop(grace_s=0)
        await assert_nothing_left(plan)

    async def test_cancelled_start_leaves_nothing(
        self, backend: Backend, plan: MachinePlan
    ) -> None:
        """The caller went away in the middle."""
        for delay_s in (0.0, 0.02, 0.08):
            start = asyncio.create_task(backend.start(plan))
            await asyncio.sleep(delay_s)
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await start).stop(grace_s=0)  # it was faster
            await assert_nothing_left(plan)

    async def test_saved_machine_goes_on_beside_itself(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """Saved running and paused; both go on, and are restored twice under other names."""
        probe = await backend.probe()
        if not probe.capabilities >= _SAVING:
            pytest.skip(f"{backend.name} does not save machines: {probe.details.get('snapshots')}")
        machine = await backend.start(plan)
        others: list[tuple[Machine, MachinePlan]] = []
        try:
            assert await agent_answers(machine.agent)
            saved = await _save(plan, machine, home / "one")
            await _hold(plan, machine)
            await machine.pause()
            (home / "two").mkdir()
            again = await machine.snapshot(home / "two")
            assert not await agent_answers(machine.agent, timeout_s=0.3)
            await machine.resume()
            await machine.wake()
            assert await agent_answers(machine.agent)
            for snapshot in (saved, again):
                other = self._other_plan(home)
                others.append((await backend.restore(snapshot, other), other))
                assert await agent_answers(others[-1][0].agent)
        finally:
            for one, _ in others:
                await one.stop(grace_s=0)
            await machine.stop(grace_s=0)
        for left in (plan, *(other for _, other in others)):
            await assert_nothing_left(left)

    async def test_saves_that_fail_leave_the_machine_alive(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """Its agent is not held, or the place is gone."""
        if not (await backend.probe()).capabilities >= _SAVING:
            pytest.skip(f"{backend.name} does not save machines")
        machine = await backend.start(plan)
        try:
            assert await agent_answers(machine.agent)
            with pytest.raises(TupperError):
                await machine.snapshot(home / "nowhere" / "at all")
            assert await agent_answers(machine.agent)
            snapshot = await _save(plan, machine, home / "fine")
            other = self._other_plan(home)
            with pytest.raises(Unsupported):
                await backend.restore(replace(snapshot, version="of long ago"), other)
            await assert_nothing_left(other)
            for path in list((home / "fine").iterdir()):
                path.rename(home / path.name)
            with pytest.raises(TupperError):
                await backend.restore(snapshot, other)
            await assert_nothing_left(other)
        finally:
            await machine.stop(grace_s=0)
        await assert_nothing_left(plan)

    def _other_plan(self, home: Path) -> MachinePlan:
        sandbox_id = new_sandbox_id()
        (home / sandbox_id).mkdir(mode=0o700)
        return self.make_plan(home / sandbox_id, sandbox_id)

    async def test_mounts_keep_their_promise(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """Both sides see one directory; what is read-only for the guest stays as it is."""
        for name in ("one", "two"):
            (home / name).mkdir()
            (home / name / "file").write_bytes(name.encode())
        one = Mount(home / "one", "/srv/one", read_only=True)
        plan = replace(plan, mounts=(one, Mount(home / "two", "/srv/two")))
        if Capability.MOUNTS not in (await backend.probe()).capabilities:
            with pytest.raises(Unsupported):
                await backend.start(plan)
            await assert_nothing_left(plan)
            return
        machine = await backend.start(plan)
        try:
            assert await agent_answers(machine.agent)
            for name in ("one", "two"):
                assert await _ask_files(plan, machine, f"/srv/{name}/file") == (200, name.encode())
            assert (await _ask_files(plan, machine, "/srv/one/new", b"x"))[0] >= 400
            assert (await _ask_files(plan, machine, "/srv/one/file", b"x"))[0] >= 400
            assert (await _ask_files(plan, machine, "/srv/two/new", b"x"))[0] == 200
            (home / "one" / "late").write_bytes(b"late")
            assert await _ask_files(plan, machine, "/srv/one/late") == (200, b"late")
        finally:
            await machine.stop(grace_s=0)
        assert sorted(path.name for path in (home / "one").iterdir()) == ["file", "late"]
        assert (home / "one" / "file").read_bytes() == b"one", (home / "one" / "file").read_bytes()
        new = (home / "two" / "new").stat()
        assert (new.st_uid, new.st_size) == (os.getuid(), 1)
        await assert_nothing_left(plan)

    async def test_directory_that_is_gone(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """A mount whose directory was removed since it was checked."""
        with pytest.raises(TupperError):
            await backend.start(replace(plan, mounts=(Mount(home / "gone", "/srv/gone"),)))
        await assert_nothing_left(plan)

    async def test_capabilities_agree_with_behaviour(
        self, home: Path, backend: Backend, plan: MachinePlan
    ) -> None:
        """What the probe does not promise says ``Unsupported``; what it promises works."""
        probe = await backend.probe()
        machine = await backend.start(plan)
        try:
            assert await agent_answers(machine.agent)
            await _check_pause(probe, machine)
            if Capability.SNAPSHOT not in probe.capabilities:
                with pytest.raises(Unsupported):
                    await machine.snapshot(home)
            assert await agent_answers(machine.agent)
            usage = await machine.usage()
            if Capability.MEMORY_LIMIT in probe.capabilities:
                assert 0 < usage.memory_bytes < 2 * plan.memory_mib << 20
        finally:
            await machine.stop(grace_s=0)
        await assert_nothing_left(plan)


async def _ask_files(
    plan: MachinePlan, machine: Machine, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    """Read a file inside as root, or write it; status and answer."""
    reader, writer = await asyncio.open_unix_connection(machine.agent.path)
    try:
        writer.write(
            f"{'GET' if body is None else 'POST'} /files?username=root&path={path} HTTP/1.1\r\n"
            "Host: agent\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n"
            f"X-Access-Token: {plan.agent_config['accessToken']}\r\n"
            f"Content-Length: {len(body or b'')}\r\n\r\n".encode()
            + (body or b"")
        )
        async with asyncio.timeout(_ANSWER_S):
            said = b""
            while more := await reader.read(1 << 16):
                said += more
        head, _, answer = said.partition(b"\r\n\r\n")
        return int(head.split()[1]), answer
    finally:
        writer.close()


_SAVING = frozenset({Capability.SNAPSHOT, Capability.RESTORE})


async def _hold(plan: MachinePlan, machine: Machine) -> None:
    """Hold the agent; a machine that needs it closed has it closed when this returns."""
    reader, writer = await asyncio.open_unix_connection(machine.agent.path)
    try:
        body = b'{"leaseMs":60000}'
        writer.write(
            b"POST /tupper/hold HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n"
            + f"X-Access-Token: {plan.agent_config['accessToken']}\r\n".encode()
            + b"Content-Length: %d\r\n\r\n" % len(body)
            + body
        )
        async with asyncio.timeout(_ANSWER_S):
            said = await reader.read()
            while more := await reader.read():
                said += more
        assert said.split()[1] == b"200", said
    finally:
        writer.close()


async def _save(plan: MachinePlan, machine: Machine, into: Path) -> Snapshot:
    """Save a machine that goes on, around a hold of its agent."""
    await asyncio.to_thread(into.mkdir)
    await _hold(plan, machine)
    try:
        return await machine.snapshot(into)
    finally:
        await machine.wake()
        assert await agent_answers(machine.agent)


async def _check_pause(probe: Probe, machine: Machine) -> None:
    if Capability.PAUSE not in probe.capabilities:
        with pytest.raises(Unsupported):
            await machine.pause()
        return
    await machine.pause()
    assert not await agent_answers(machine.agent, timeout_s=0.3)
    await machine.resume()
