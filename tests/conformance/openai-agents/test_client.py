"""What the OpenAI Agents SDK asks of a sandbox client, call by call."""

import io
import urllib.request
from pathlib import Path

import pytest
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxClientOptions
from agents.sandbox.snapshot import LocalSnapshotSpec

from tupper import AsyncSandbox, SandboxNotFoundException
from tupper.integrations.openai_agents import (
    TupperSandboxClient,
    TupperSandboxClientOptions,
)


@pytest.fixture
async def session():
    client = TupperSandboxClient()
    options = TupperSandboxClientOptions(exposed_ports=(8000,))
    made = await client.create(options=options)
    await made.start()
    yield made
    await made.aclose()
    await client.delete(made)


async def test_a_command_starts_in_the_workspace_as_the_user(session):
    done = await session.exec("pwd; id -un; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == (b"/workspace\nuser\n", b"err\n", 3)


async def test_arguments_stay_what_they_are(session):
    done = await session.exec("printf", "%s|", "a b", "$(id)", "'", shell=False)
    assert done.stdout == b"a b|$(id)|'|"


async def test_another_user(session):
    assert (await session.exec("id -un", user="root")).stdout == b"root\n"
    unknown = await session.exec("id -un", user="nobody-there")
    assert unknown.exit_code != 0
    assert b"nobody-there" in unknown.stderr


async def test_a_time_limit_is_an_error(session):
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=0.5)


async def test_files(session):
    await session.write(Path("a/b.bin"), io.BytesIO(b"\x00\xff"))
    assert (await session.read(Path("a/b.bin"))).read() == b"\x00\xff"
    assert await session.read_bounded(Path("/workspace/a/b.bin"), max_bytes=1) == b"\x00"
    assert [Path(e.path).name for e in await session.ls(Path("a"))] == ["b.bin"]
    await session.mkdir(Path("c/d"), parents=True)
    await session.mv(Path("a/b.bin"), Path("c/d/e"))
    await session.rm(Path("a"), recursive=True)
    assert (await session.exec("find . -type f")).stdout == b"./c/d/e\n"


async def test_files_that_are_not_there_or_not_allowed(session):
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("missing"))
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("/etc/passwd"))
    with pytest.raises(InvalidManifestPathError):
        await session.write(Path("../outside"), io.BytesIO(b""))
    await session.exec("ln -s /etc etc")
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("etc/passwd"))
    await session.exec("echo secret > closed; chmod 000 closed; mkdir folder")
    with pytest.raises(WorkspaceArchiveReadError):
        await session.read(Path("closed"))
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.write(Path("folder"), io.BytesIO(b""))


async def test_a_port(session):
    await session.exec("echo hello > index.html; python3 -m http.server 8000 >/dev/null 2>&1 &")
    await session.exec("until curl -fs localhost:8000; do sleep 0.1; done", timeout=30)
    endpoint = await session.resolve_exposed_port(8000)
    with urllib.request.urlopen(endpoint.url_for("http"), timeout=30) as answer:
        assert answer.read() == b"hello\n"


async def test_the_end_of_the_sandbox_during_a_command(session):
    await AsyncSandbox.kill(session.state.sandbox_id)
    assert not await session.running()
    with pytest.raises(ExecTransportError):
        await session.exec("true")


async def test_options_and_state_go_through_json():
    options = TupperSandboxClientOptions(template="base", options={"cpus": 1})
    assert BaseSandboxClientOptions.parse(options.model_dump(mode="json")) == options


async def test_a_manifest_and_a_session_that_is_resumed(tmp_path):
    client = TupperSandboxClient()
    manifest = Manifest(entries={"seed.txt": File(content=b"seed")})
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    first = await client.create(snapshot=snapshot, manifest=manifest)
    async with first:
        assert (await first.exec("cat seed.txt; echo more > more.txt")).stdout == b"seed"
    stored = client.serialize_session_state(first.state)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect(first.state.sandbox_id)

    second = await client.resume(client.deserialize_session_state(stored))
    async with second:
        assert second.state.sandbox_id != first.state.sandbox_id
        assert (await second.exec("cat seed.txt more.txt")).stdout == b"seedmore\n"
    await client.delete(second)


async def test_a_session_that_is_paused_goes_on_in_its_sandbox():
    client = TupperSandboxClient()
    options = TupperSandboxClientOptions(pause_on_exit=True)
    first = await client.create(options=options)
    async with first:
        await first.exec("echo here > file; sleep 1000 & echo $! > pid")
    stored = client.serialize_session_state(first.state)

    second = await client.resume(client.deserialize_session_state(stored))
    try:
        await second.start()
        assert second.state.sandbox_id == first.state.sandbox_id
        assert (await second.exec("cat file; kill -0 $(cat pid)")).ok()
    finally:
        await client.delete(second)
