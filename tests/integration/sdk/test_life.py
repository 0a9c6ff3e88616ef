"""Lives of sandboxes: made, cancelled, found, killed; many threads; lists, ports, terminals."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from integration.sdk.control import problem
from integration.sdk.waiting import wait_for
from tupper import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    PtySize,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    ServiceBusyException,
    UnsupportedException,
)
from tupper.core.paths import find_paths

NOBODY = "i" + "0" * 20


def living(control):
    return [machine for machine in control.machines.values() if not machine.end_reason]


def test_a_background_process_is_asked_about_itself_once(control, monkeypatch):
    monkeypatch.delenv("TUPPER_URL")
    paths = find_paths()
    paths.runtime.mkdir(mode=0o700, parents=True)
    asked = []
    try:
        for _ in range(2):  # the second time it is another process
            paths.address_file.unlink(missing_ok=True)
            paths.address_file.write_text(control.url)
            before = len(control.requests)
            for _ in range(3):
                assert not Sandbox.list(metadata={"nobody": "has"}, limit=1).next_items()
            asked.append([path for _, path, *_ in control.requests[before:]])
    finally:
        paths.address_file.unlink()
        paths.runtime.rmdir()
    assert asked == [["/tupper/v1/info", *["/v2/sandboxes"] * 3]] * 2


def test_made_found_and_killed(make, control):
    sandbox = make(metadata={"a": "b"}, name="one", envs={"E": "f"})
    assert sandbox.commands.run("echo $E").stdout == "f\n"
    info = sandbox.get_info()
    assert (info.sandbox_id, info.state) == (sandbox.sandbox_id, SandboxState.RUNNING)
    assert (info.metadata, info.name, info.backend) == ({"a": "b"}, "one", "process")
    assert Sandbox.get_info(sandbox.sandbox_id).metadata == {"a": "b"}
    other = Sandbox.connect(sandbox.sandbox_id)
    assert other.commands.run("echo same").stdout == "same\n"
    assert sandbox.get_metrics()[0].cpu_count == 1
    assert sandbox.is_running() is True
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert sandbox.is_running() is False
    assert Sandbox.kill(NOBODY) is False
    for call in (Sandbox.connect, Sandbox.get_info):
        with pytest.raises(SandboxNotFoundException, match=NOBODY):
            call(NOBODY)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.set_timeout(NOBODY, 5)


def test_tb085_connect_never_shortens(make, control):
    sandbox = make(timeout=1800)
    end = sandbox.get_info().end_at
    Sandbox.connect(sandbox.sandbox_id)
    Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert sandbox.get_info().end_at == end
    sandbox.set_timeout(10)
    assert sandbox.get_info().end_at < end


def test_lists_have_pages(make):
    made = {make().sandbox_id for _ in range(3)}
    paginator = Sandbox.list(limit=2)
    first = paginator.next_items()
    assert len(first) == 2
    assert paginator.has_next
    assert paginator.next_token
    found = {info.sandbox_id for info in first}
    while paginator.has_next:
        found |= {info.sandbox_id for info in paginator.next_items()}
    assert made <= found
    with pytest.raises(SandboxException, match="no next page"):
        paginator.next_items()
    assert made <= {info.sandbox_id for info in Sandbox.list(limit=1)}


def test_queries_are_encoded_as_the_wire_wants_them(control):
    Sandbox.list(SandboxQuery(metadata={"a b": "c&d"}, state=[SandboxState.RUNNING])).next_items()
    from tupper.sdk._shared.info import render_query

    assert render_query(SandboxQuery(metadata={"a b": "c&d"}), None) == {
        "metadata": "a%2520b=c%2526d"
    }


def test_tb039_the_block_ends_it_and_its_error_surfaces(control):
    with pytest.raises(KeyError, match="mine"), Sandbox.create() as sandbox:
        raise KeyError("mine")
    assert sandbox.sandbox_id not in {machine.sandbox_id for machine in living(control)}
    with Sandbox.create() as sandbox:
        assert sandbox.kill() is True


def test_tb039_cancelled_creates_leave_nothing(control):
    before = len(living(control))
    control.create_delay_s = 0.3
    try:

        async def main():
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(AsyncSandbox.create(), 0.05)

        asyncio.run(main())
    finally:
        control.create_delay_s = 0.0
    wait_for(lambda: len(living(control)) == before)


def test_tb039_a_server_that_hangs_does_not_hold_the_cancelled(control):
    control.create_delay_s = 6.0
    before = len(living(control))
    try:

        async def main():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(AsyncSandbox.create(), 0.05)

        asyncio.run(main())
    finally:
        control.create_delay_s = 0.0
    wait_for(lambda: len(living(control)) == before)


def test_tb039_cancelled_twice_inside_the_block(control):
    before = len(living(control))

    async def main():
        up = asyncio.Event()

        async def body():
            async with await AsyncSandbox.create() as sandbox:
                up.set()
                await sandbox.commands.run("sleep 300", timeout=0)

        task = asyncio.create_task(body())
        await up.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(living(control)) == before


@pytest.mark.parametrize("where", ["block", "create"])
def test_tb039_interrupt(control, tmp_path, where):
    script = tmp_path / "script.py"
    if where == "create":
        text = (
            "from tupper import Sandbox\nprint('up', flush=True)\n"
            "Sandbox.create(metadata={'m': 'x'})\nimport time; time.sleep(60)\n"
        )
        control.create_delay_s = 1.0
    else:
        text = (
            "from tupper import Sandbox\nwith Sandbox.create() as s:\n"
            "    print('up', flush=True)\n    s.commands.run('sleep 300', timeout=0)\n"
        )
    script.write_text(text)
    before, asked = len(living(control)), len(control.requests)
    child = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout.readline() == "up\n"
        if where == "create":
            wait_for(lambda: any(r[1] == "/v2/sandboxes" for r in control.requests[asked:]))
        else:
            wait_for(lambda: len(living(control)) > before)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    finally:
        control.create_delay_s = 0.0
    assert "KeyboardInterrupt" in err
    assert "was destroyed" not in err
    assert "loop is closed" not in err
    wait_for(lambda: len(living(control)) == before)


def test_tb105_a_cancelled_command_is_ended(control, tmp_path):
    async def main():
        async with await AsyncSandbox.create() as sandbox:
            task = asyncio.create_task(sandbox.commands.run(f"touch {tmp_path}/m; sleep 500"))
            while not (tmp_path / "m").exists():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while await sandbox.commands.list():
                await asyncio.sleep(0.01)
            handle = await sandbox.commands.run("sleep 501", background=True)
            await handle.disconnect()
            assert [process.pid for process in await sandbox.commands.list()] == [handle.pid]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_one_sandbox_in_two_loops(control):
    sandbox = asyncio.run(AsyncSandbox.create())

    async def use():
        assert (await sandbox.commands.run("echo again")).stdout == "again\n"

    asyncio.run(use())
    asyncio.run(use())
    assert asyncio.run(sandbox.kill()) is True


def test_tb041_one_client_many_threads(control):
    with Sandbox.create() as sandbox:

        def work(index):
            for _ in range(20):
                assert sandbox.commands.run(["echo", str(index)]).stdout == f"{index}\n"
            path = sandbox.files.write(f"n{index}", str(index)).path
            return sandbox.files.read(path)

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            assert list(pool.map(work, range(32))) == [str(index) for index in range(32)]


def test_after_a_fork(control):
    with Sandbox.create() as sandbox:
        assert sandbox.commands.run("echo parent").stdout == "parent\n"
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                code = 0 if sandbox.commands.run("echo child").stdout == "child\n" else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sandbox.commands.run("echo parent").stdout == "parent\n"


def test_tb087_an_upload_in_flight_ends_with_the_sandbox(control):
    sandbox = Sandbox.create()
    machine = control.machines[sandbox.sandbox_id]
    sent = threading.Event()

    def endless():
        while True:
            yield b"x" * 65536
            sent.set()

    def kill():
        sent.wait(20)
        control.end(machine, "killed")

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(SandboxException, match="killed"):
        sandbox.files.write("endless", endless())
    killer.join()
    sandbox.close()


def test_errors_of_the_server_keep_code_and_hint(control):
    for status, code, kind in (
        (429, "capacity_reached", RateLimitException),
        (507, "out_of_disk", NotEnoughSpaceException),
        (404, "image_not_found", NotFoundException),
        (503, "backend_unavailable", ServiceBusyException),
        (501, "unsupported", UnsupportedException),
        (400, "invalid_argument", InvalidArgumentException),
        (500, "machine_failed", SandboxException),
    ):
        control.next_problem = problem(status, code, "the thing", "do this")
        with pytest.raises(kind, match="the thing") as caught:
            Sandbox.create()
        assert (caught.value.code, caught.value.hint) == (code, "do this")
        assert caught.value.status_code == status


def test_arguments_of_e2b_that_cannot_work_say_so(control):
    with pytest.raises(UnsupportedException, match="mcp"):
        Sandbox.create(mcp={"server": {}})


def test_profiles_fill_create(control, tmp_path, monkeypatch):
    (tmp_path / "tupper.toml").write_text("[profiles.p]\nmemory = '1g'\nenvs = {A = 'b'}\n")
    monkeypatch.chdir(tmp_path)
    with Sandbox.create(profile="p", cpus=2) as sandbox:
        assert sandbox.commands.run("echo $A").stdout == "b\n"
        assert control.machines[sandbox.sandbox_id].body["tupper"] == {"memoryMiB": 1024, "cpus": 2}
    with pytest.raises(NotFoundException, match="known: p") as caught:
        Sandbox.create(profile="q")
    assert caught.value.code == "profile_not_found"
    (tmp_path / "tupper.toml").write_text("[profiles.p]\nmemroy = '1g'\n")
    with pytest.raises(InvalidArgumentException, match="memroy"):
        Sandbox.create()


def test_ports_are_published_once(control):
    with Sandbox.create() as sandbox:
        address = sandbox.get_host(8000)
        assert address.startswith("127.0.0.1:")
        asked = len(control.requests)
        assert sandbox.get_host(8000) == address
        assert len(control.requests) == asked
        assert Sandbox.connect(sandbox.sandbox_id).get_host(8000) == address
        with pytest.raises(InvalidArgumentException):
            sandbox.get_host(0)


def test_watches(make, tmp_path):
    sandbox = make()
    directory = tmp_path / "w"
    directory.mkdir()
    seen = []
    if isinstance(sandbox, Sandbox):
        handle = sandbox.files.watch_dir(str(directory), recursive=True, include_entry=True)

        def events():
            seen.extend(handle.get_new_events())
            return seen
    else:
        handle = sandbox.files.watch_dir(
            str(directory), seen.append, recursive=True, include_entry=True
        )

        def events():
            return seen

    sandbox.files.write(f"{directory}/a/f", "x")
    wait_for(lambda: any(event.name == "a/f" for event in events()))
    assert any(event.type is FilesystemEventType.CREATE for event in seen)
    assert any(event.entry and event.entry.path.startswith(str(directory)) for event in seen)
    handle.stop()
    arguments = () if isinstance(sandbox, Sandbox) else (seen.append,)
    with pytest.raises(FileNotFoundException):
        sandbox.files.watch_dir("/no/where", *arguments)
    with pytest.raises(InvalidArgumentException):
        sandbox.files.watch_dir("/etc/hostname", *arguments)


def test_tb063_terminals(make):
    sandbox = make()
    seen = bytearray()
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), on_data=seen.extend, envs={"M": "y"})
    sandbox.pty.resize(handle.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(handle.pid, b"stty size; echo $TERM-$M; exit 5\n")
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert caught.value.exit_code == 5
    assert b"40 120" in seen
    assert b"xterm-256color-y" in seen
    assert sandbox.pty.kill(handle.pid) is False


def test_links_of_a_local_sandbox_lead_to_an_address_of_the_server(control):
    with Sandbox.create() as sandbox:
        url = sandbox.download_url("/x", user="user", use_signature_expiration=60)
        assert url.startswith("http://127.0.0.1:40001/files?path=%2Fx&username=user&signature=v1_")


def test_network_is_replaced_by_instance_and_by_id(control):
    with Sandbox.create() as sandbox:
        machine = control.machines[sandbox.sandbox_id]
        sandbox.update_network({"deny_out": lambda context: [context.all_traffic]})
        assert machine.network == {"denyOut": ["0.0.0.0/0"]}
        Sandbox.update_network(sandbox.sandbox_id, {"allow_internet_access": False})
        assert machine.network == {"allow_internet_access": False}
        with pytest.raises(UnsupportedException, match="egress_proxy"):
            sandbox.update_network({"egress_proxy": {"address": "x:1"}})
    with pytest.raises(SandboxNotFoundException):
        sandbox.update_network({})
