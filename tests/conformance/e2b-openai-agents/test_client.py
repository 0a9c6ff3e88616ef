"""The client for E2B of the OpenAI Agents SDK, with ``tupper serve`` as E2B."""

import io
import json
from pathlib import Path

import pytest
from agents import RunConfig, Runner
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call
from e2b import Sandbox

pytestmark = pytest.mark.usefixtures("e2b_server")


def options(**more):
    return E2BSandboxClientOptions(sandbox_type="e2b", timeout=600, **more)


@pytest.fixture
async def session(e2b_server):
    client = E2BSandboxClient()
    made = await client.create(options=options(exposed_ports=(8000,)))
    await made.start()
    yield made
    await made.aclose()
    await client.delete(made)


async def test_commands(session):
    done = await session.exec("pwd; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == (b"/workspace\n", b"err\n", 3)
    done = await session.exec("printf", "%s|", "a b", "$(id)", "'", shell=False)
    assert done.stdout == b"a b|$(id)|'|"
    assert (await session.exec("id -un", user="root")).stdout == b"root\n"
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=0.5)


async def test_files(session):
    await session.write(Path("a/b.bin"), io.BytesIO(b"\x00\xff"))
    assert (await session.read(Path("a/b.bin"))).read() == b"\x00\xff"
    assert [Path(entry.path).name for entry in await session.ls(Path("a"))] == ["b.bin"]
    await session.mkdir(Path("c/d"), parents=True)
    await session.rm(Path("a"), recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("a/b.bin"))


async def test_a_terminal(session):
    update = await session.pty_exec_start("cat", shell=False, tty=True, yield_time_s=1)
    update = await session.pty_write_stdin(
        session_id=update.process_id, chars="typed\n", yield_time_s=5
    )
    assert b"typed" in update.output
    await session.pty_terminate_all()


async def test_the_name_of_a_port(session):
    endpoint = await session.resolve_exposed_port(8000)
    assert endpoint.host.startswith(f"8000-{session.state.sandbox_id}.")


@pytest.mark.parametrize("way", ["tar", "snapshot"])
async def test_a_session_that_is_resumed(tmp_path, way):
    client = E2BSandboxClient()
    manifest = Manifest(entries={"seed.txt": File(content=b"seed")})
    session = await client.create(
        snapshot=LocalSnapshotSpec(base_path=tmp_path),
        manifest=manifest,
        options=options(workspace_persistence=way),
    )
    await session.start()
    await session.exec("echo more >> seed.txt")
    await session.stop()
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    await session.shutdown()
    await client.delete(session)
    resumed = await client.resume(state)
    await resumed.start()
    assert (await resumed.exec("cat seed.txt")).stdout == b"seedmore\n"
    await resumed.shutdown()
    await client.delete(resumed)


async def test_a_sandbox_that_waits_paused():
    client = E2BSandboxClient()
    session = await client.create(options=options(pause_on_exit=True))
    await session.start()
    await session.exec("echo kept > /tmp/kept")
    await session.shutdown()
    assert Sandbox.get_info(session.state.sandbox_id).state == "paused"
    resumed = await client.resume(session.state)
    await resumed.start()
    assert (await resumed.exec("cat /tmp/kept")).stdout == b"kept\n"
    Sandbox.kill(resumed.state.sandbox_id)


async def test_an_agent_runs_a_command_and_answers():
    command = json.dumps({"cmd": "wc -l < numbers.txt; uname -s"})
    model = ScriptedModel(
        [
            [function_call("exec_command", command, call_id="call-1")],
            [assistant_message("three lines")],
        ]
    )
    agent = SandboxAgent(name="counter", model=model, capabilities=[Shell(), Filesystem()])
    manifest = Manifest(entries={"numbers.txt": File(content=b"1\n2\n3\n")})
    given = SandboxRunConfig(client=E2BSandboxClient(), options=options(), manifest=manifest)
    config = RunConfig(tracing_disabled=True, sandbox=given)
    result = await Runner.run(agent, "How many lines?", run_config=config)
    model.assert_complete()
    assert result.final_output == "three lines"
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "3\nLinux" in outputs[0]
