import asyncio
import dataclasses
import errno
import os
import time

import pytest

from integration.engine.world import InProcess, World
from tupper.core.backend import Isolation
from tupper.core.errors import (
    AlreadyExists,
    BackendNotFound,
    BackendUnavailable,
    CapacityReached,
    Conflict,
    ImageNotFound,
    InvalidArgument,
    MachineFailed,
    OutOfDisk,
    SandboxNotFound,
    StoreError,
)
from tupper.core.lifecycle import EndReason, State
from tupper.core.sandbox import CreateRequest, PortRequest
from tupper.core.settings import Settings
from tupper.engine import Engine, Query


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path, InProcess())
    yield world
    for machine in world.backend.machines.values():
        machine.double.silent.set()
        await machine.stop(grace_s=0)


@pytest.fixture
async def engine(world):
    engine = await Engine.open(
        world.paths, Settings(min_free_disk_mib=1, max_sandboxes=30), find_parts=world.find_parts
    )
    yield engine
    await engine.close()


async def until(condition, what):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


async def test_life_from_create_to_kill(world, engine):
    record = await engine.create(
        CreateRequest(name="a", env={"B": "2"}, metadata={"k": "v"}, timeout_s=60)
    )
    assert record.state is State.RUNNING
    assert record.deadline == pytest.approx(record.started_at + 60)
    assert (record.backend, record.isolation, record.mechanism) == (
        "double",
        "user-kernel",
        "a double",
    )
    plan = world.backend.plans[record.id]
    assert plan.agent_config["defaultUser"] == "www"
    assert plan.agent_config["defaultWorkdir"] == "/srv"
    assert plan.agent_config["envVars"]["A"] == "image"
    assert plan.agent_config["envVars"]["B"] == "2"
    assert plan.etc_files["/etc/resolv.conf"] == "nameserver 10.0.0.1\n"
    assert plan.hostname == "a"
    assert (await engine.get("a")).id == record.id
    assert (await engine.get(record.id[:8])).id == record.id
    assert (await engine.get(record.id + "-client")).id == record.id
    await engine.kill(record.id)
    assert world.leftovers() == []
    with pytest.raises(SandboxNotFound):
        await engine.kill(record.id)
    ended = await engine.get("a", ended=True)
    assert ended.end_reason is EndReason.KILLED


async def test_agent_socket_is_out_of_the_guests_reach(world, engine):
    record = await engine.create(CreateRequest())
    assert record.agent.path == str(world.paths.runtime / "s" / f"{record.id}.sock")
    assert not list((world.paths.data / "sandboxes" / record.id / "m").iterdir())
    assert (world.paths.runtime / "s").stat().st_mode & 0o077 == 0


async def test_agent_learns_the_deadline(world, engine):
    record = await engine.create(CreateRequest(timeout_s=60))
    double = world.backend.machines[record.id].double
    await until(lambda: double.deadline == record.deadline, "deadline")
    await engine.set_timeout(record.id, 500)
    await until(lambda: double.deadline > record.deadline, "deadline")


@pytest.mark.parametrize(
    ("fault", "error"),
    [("start", MachineFailed), ("dies", MachineFailed)],
)
async def test_TB089_failed_start_leaves_nothing(world, engine, fault, error):
    world.backend.fault = fault
    with pytest.raises(error):
        await engine.create(CreateRequest(name="n"))
    assert world.leftovers() == []
    assert engine.count == 0
    assert (await engine.get("n", ended=True)).end_reason is EndReason.START_FAILED
    world.backend.fault = ""
    assert (await engine.create(CreateRequest(name="n"))).state is State.RUNNING


async def test_TB089_agent_that_dies_is_noticed_at_once_with_its_last_words(world, engine):
    world.backend.fault = "dies"
    with pytest.raises(MachineFailed, match="panic: no memory"):
        await engine.create(CreateRequest())


async def test_TB089_agent_that_never_answers(world, engine, monkeypatch):
    monkeypatch.setattr("tupper.engine.creation.AGENT_STARTS_S", 0.2)
    world.backend.fault = "silent"
    with pytest.raises(Exception, match="agent"):
        await engine.create(CreateRequest())
    assert world.leftovers() == []


async def test_TB089_port_in_use(world, engine):
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(AlreadyExists, match=str(port)):
        await engine.create(CreateRequest(ports=(PortRequest(80, port),)))
    server.close()
    assert world.leftovers() == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreateRequest(memory_mib=1), InvalidArgument),
        (CreateRequest(timeout_s=0), InvalidArgument),
        (CreateRequest(timeout_s=10**9), InvalidArgument),
        (CreateRequest(name="i" + "a" * 20), InvalidArgument),
        (CreateRequest(name="a/b"), InvalidArgument),
        (CreateRequest(image="missing"), ImageNotFound),
        (CreateRequest(backend="nope"), BackendNotFound),
        (CreateRequest(min_isolation=Isolation.HARDWARE_VM), BackendUnavailable),
        (CreateRequest(owner_pid=2**22 + 1), InvalidArgument),
        (CreateRequest(env={"A=B": "c"}), InvalidArgument),
    ],
)
async def test_bad_requests_are_refused_and_leave_nothing(world, engine, request_, error):
    with pytest.raises(error):
        await engine.create(request_)
    assert world.leftovers() == []
    assert engine.count == 0


async def test_TB043_same_name_at_once_has_one_winner(world, engine):
    results = await asyncio.gather(
        *(engine.create(CreateRequest(name="one")) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(r, AlreadyExists) for r in results) == 7
    winner = await engine.get("one")
    assert winner.id in world.backend.machines


async def test_TB043_many_at_once_up_to_the_capacity(world, engine):
    results = await asyncio.gather(
        *(engine.create(CreateRequest()) for _ in range(36)), return_exceptions=True
    )
    made = [r for r in results if not isinstance(r, BaseException)]
    assert len({r.id for r in made}) == 30
    assert sum(isinstance(r, CapacityReached) for r in results) == 6


async def test_too_little_disk(world, tmp_path):
    engine = await Engine.open(
        world.paths, Settings(min_free_disk_mib=2**40), find_parts=world.find_parts
    )
    with pytest.raises(OutOfDisk, match="MiB"):
        await engine.create(CreateRequest())
    await engine.close()


async def test_kill_during_create_cancels_it(world, engine):
    world.backend.hold = asyncio.Event()
    creating = asyncio.create_task(engine.create(CreateRequest(name="n")))
    await until(lambda: world.backend.plans, "start")
    await engine.kill("n")
    with pytest.raises(Conflict):
        await creating
    assert world.leftovers() == []


async def test_TB039_cancelled_create_leaves_nothing(world, engine):
    world.backend.hold = asyncio.Event()
    creating = asyncio.create_task(engine.create(CreateRequest()))
    await until(lambda: world.backend.plans, "start")
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert world.leftovers() == []
    assert engine.count == 0


async def test_machine_that_dies_ends_its_sandbox(world, engine):
    record = await engine.create(CreateRequest())
    world.backend.machines[record.id].die(EndReason.OUT_OF_MEMORY, "oom")
    await until(lambda: engine.count == 0, "end")
    ended = await engine.get(record.id, ended=True)
    assert ended.end_reason is EndReason.OUT_OF_MEMORY
    assert "oom" in await engine.log(record.id)
    assert world.leftovers() == []


async def test_machine_that_would_not_end_is_reported_and_tried_again(world, engine, monkeypatch):
    monkeypatch.setattr("tupper.engine.ending.AGAIN_S", 0.05)
    record = await engine.create(CreateRequest())
    world.backend.machines[record.id].refuses = 1
    with pytest.raises(MachineFailed, match="does not end"):
        await engine.kill(record.id)
    assert engine.count == 1
    await until(lambda: engine.count == 0, "second try")
    assert world.leftovers() == []


async def test_deadline_ends_a_sandbox(world, engine):
    record = await engine.create(CreateRequest(timeout_s=0.05))
    await until(lambda: engine.count == 0, "end")
    assert (await engine.get(record.id, ended=True)).end_reason is EndReason.TIMEOUT


async def test_TB085_connect_never_shortens_and_set_timeout_does(engine):
    record = await engine.create(CreateRequest(timeout_s=1800))
    assert (await engine.connect(record.id, None)).deadline == record.deadline
    assert (await engine.connect(record.id, 60)).deadline == record.deadline
    assert (await engine.connect(record.id, 3600)).deadline > record.deadline
    assert (await engine.set_timeout(record.id, 10)).deadline < record.deadline


async def test_TB085_set_timeout_that_succeeded_keeps_it_alive(engine):
    async def race(k: int) -> None:
        record = await engine.create(CreateRequest(timeout_s=600))
        await engine.set_timeout(record.id, 0.1)
        await asyncio.sleep(0.0985 + k * 0.0001)
        try:
            await engine.set_timeout(record.id, 600)
        except SandboxNotFound:
            return
        await asyncio.sleep(0.1)
        assert (await engine.get(record.id)).state is State.RUNNING

    await asyncio.gather(*(race(k) for k in range(25)))


async def test_idle_timeout_asks_before_it_ends(world, engine):
    record = await engine.create(CreateRequest(idle_timeout_s=0.2))
    double = world.backend.machines[record.id].double
    double.last_activity = time.time() + 0.4
    started = time.time()
    await until(lambda: engine.count == 0, "end")
    assert time.time() - started >= 0.2
    assert (await engine.get(record.id, ended=True)).end_reason is EndReason.IDLE_TIMEOUT


async def test_silent_agent_is_unreachable_not_ended(world, engine):
    record = await engine.create(CreateRequest())
    world.backend.machines[record.id].double.silent.clear()
    got = await engine.get(record.id)
    assert got.state is State.RUNNING
    assert engine.health(record.id) == "unreachable"
    world.backend.machines[record.id].double.silent.set()
    await engine.get(record.id)
    assert engine.health(record.id) == "ok"


async def test_adoption_after_a_restart(world, engine):
    record = await engine.create(CreateRequest(name="kept"))
    address = await engine.publish_port(record.id, 8000)
    await engine.close()
    again = await Engine.open(
        world.paths, Settings(min_free_disk_mib=1), find_parts=world.find_parts
    )
    assert again.engine_id == engine.engine_id
    got = await again.get("kept")
    assert (got.id, got.token, got.deadline) == (record.id, record.token, record.deadline)
    await until(lambda: bool(again.running()[0].forwards), "ports")
    assert await again.publish_port(record.id, 8000) == address
    reader, writer = await asyncio.open_connection(*address.split(":"))
    assert await reader.read() == b"8000"
    writer.close()
    assert world.network.swept[-1] == {record.id}
    await again.close()


async def test_adoption_reaps_the_dead_and_undoes_the_half_made(world, engine):
    dead = await engine.create(CreateRequest(name="dead"))
    half = await engine.create(CreateRequest(name="half"))
    rebooted = await engine.create(CreateRequest(name="rebooted"))
    from dataclasses import replace

    await engine.store.save(replace(half, state=State.STARTING))
    await engine.store.save(replace(rebooted, boot_id="another"))
    orphan = world.paths.data / "sandboxes" / ("i" + "z" * 20)
    orphan.mkdir()
    await engine.close()
    await world.backend.machines.pop(dead.id).stop(grace_s=0)
    again = await Engine.open(
        world.paths, Settings(min_free_disk_mib=1), find_parts=world.find_parts
    )
    await until(lambda: again.count == 0, "reaped")
    reasons = {n: (await again.get(n, ended=True)).end_reason for n in ("dead", "half", "rebooted")}
    assert reasons == {
        "dead": EndReason.MACHINE_DIED,
        "half": EndReason.START_FAILED,
        "rebooted": EndReason.HOST_REBOOTED,
    }
    assert world.leftovers() == []
    assert world.backend.machines[half.id].stops
    await again.close()


async def test_second_engine_is_refused_with_the_pid(world, engine):
    with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        await Engine.open(world.paths, Settings(), find_parts=world.find_parts)


async def test_listing(engine):
    for k in range(3):
        await engine.create(CreateRequest(metadata={"k": str(k), "all": "x"}))
    page = await engine.page(Query(limit=2))
    assert [r.metadata["k"] for r in page.records] == ["2", "1"]
    rest = await engine.page(Query(limit=2, after=page.next_after))
    assert [r.metadata["k"] for r in rest.records] == ["0"]
    assert rest.next_after is None
    up = await engine.page(Query(ascending=True))
    assert [r.metadata["k"] for r in up.records] == ["0", "1", "2"]
    assert [r.metadata["k"] for r in (await engine.page(Query(metadata={"k": "1"}))).records] == [
        "1"
    ]


async def test_metrics_are_taken_on_request(engine):
    record = await engine.create(CreateRequest(memory_mib=128, disk_mib=64))
    (sample,) = await engine.metrics(record.id)
    assert (sample.cpu_used_pct, sample.memory_total, sample.disk_total) == (
        12.5,
        128 << 20,
        64 << 20,
    )
    assert await engine.metrics(record.id, 0, record.created_at - 100) == []


async def test_owner_that_ends_takes_its_sandbox_along(world, engine):
    # A pid that ends without a child of ours: a thread of this process has none, so fork is real here.
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    record = await engine.create(CreateRequest(owner_pid=pid))
    os.close(write)
    await until(lambda: engine.count == 0, "end")
    os.waitpid(pid, 0)
    assert (await engine.get(record.id, ended=True)).end_reason is EndReason.OWNER_GONE


async def test_kill_with_a_full_store(world, engine, monkeypatch):
    monkeypatch.setattr("tupper.engine.context.SAVE_AGAIN_S", 0.01)
    record = await engine.create(CreateRequest(name="n"))
    save, failing = engine.store.save, True

    async def full(record):
        if failing:
            raise OutOfDisk("full")
        await save(record)

    monkeypatch.setattr(engine.store, "save", full)
    await engine.kill(record.id)
    assert world.leftovers() == []
    assert engine.count == 0
    with pytest.raises(SandboxNotFound):
        await engine.get("n", ended=True)
    failing = False
    for _ in range(500):
        if await engine.store.find_ended("n"):
            break
        await asyncio.sleep(0.01)
    assert (await engine.get("n", ended=True)).end_reason is EndReason.KILLED


async def test_create_on_a_full_disk(world, engine, monkeypatch):
    async def full(path, size_mib):
        raise OSError(errno.ENOSPC, "No space left on device")

    parts = dataclasses.replace(engine._context.parts, make_disk=full)
    monkeypatch.setattr(engine._context, "parts", parts)
    with pytest.raises(OutOfDisk, match="full"):
        await engine.create(CreateRequest())
    assert world.leftovers() == []


async def test_cut_off_start_is_adopted_as_planned(world, engine):
    record = await engine.create(CreateRequest())
    starting = dataclasses.replace(record, state=State.STARTING, machine=None, agent=None)
    await engine.store.save(starting)
    await engine.close()
    seen = []
    adopt = world.backend.adopt

    async def look(record):
        seen.append(record)
        return await adopt(record)

    world.backend.adopt = look
    again = await Engine.open(
        world.paths, Settings(min_free_disk_mib=1), find_parts=world.find_parts
    )
    plan = world.backend.plans[record.id]
    assert seen[0].pid == 0
    assert seen[0].data == {"directory": str(plan.directory), "host_name": plan.host_name}
    assert world.leftovers() == []
    await again.close()
