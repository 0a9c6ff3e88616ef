"""The engine's client and port forwards, with the real agent on this host."""

import asyncio
import json
import os
import socket
import subprocess
import time

import pytest

from tupper.core.backend import AgentAddress
from tupper.core.errors import MachineUnreachable, NotFound, Unauthenticated, Unavailable
from tupper.guest import Agent, claim_socket, dial, find_agent_binary
from tupper.network import PortForward

TOKEN = "a-token-of-this-test"


@pytest.fixture
async def agent_address(tmp_path):
    try:
        binary = find_agent_binary()
    except NotFound as error:
        pytest.skip(str(error))
    shared, private = tmp_path / "run" / "guest", tmp_path / "private.sock"
    shared.mkdir(parents=True)
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "listen": f"unix:{shared / 'agent.sock'}",
                "accessToken": TOKEN,
                "sandboxId": "i" + "a" * 20,
                "defaultUser": "root",
            }
        )
    )
    process = subprocess.Popen(
        [binary, "serve", "--config", config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        await claim_socket(shared / "agent.sock", private, 20)
        yield AgentAddress("unix", path=str(private))
    finally:
        process.terminate()
        process.wait(20)


async def test_the_calls_of_the_engine(agent_address):
    agent = Agent(agent_address, TOKEN)
    await agent.health()
    status = await agent.status()
    assert status["sandboxId"] == "i" + "a" * 20
    assert status["processes"] == 0
    assert (await agent.metrics())["cpu_count"] >= 1
    await agent.init(env_vars={"A": "b"})
    await agent.deadline(time.time() + 600)
    await agent.deadline(0)
    await agent.hold(lease_s=1, close=False)
    await agent.release()
    assert isinstance(await agent.log(), str)
    with pytest.raises(Unauthenticated):
        await Agent(agent_address, "wrong").status()
    await agent.shutdown(grace_s=0)
    with pytest.raises(MachineUnreachable):
        await _answers_for_ever(agent)


async def _answers_for_ever(agent):
    async with asyncio.timeout(20):
        while True:
            await agent.health(timeout_s=0.01)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("bind", ["0.0.0.0", "127.0.0.1", "::1", "::"])
async def test_TB033_a_port_inside_whatever_its_server_binds(agent_address, bind):
    async def greet(reader, writer):
        writer.write(b"hi " + await reader.read(100))
        writer.close()

    server = await asyncio.start_server(greet, bind, 0)
    port = server.sockets[0].getsockname()[1]
    forward = PortForward()
    outside = await forward.open(agent_address, TOKEN, port, "127.0.0.1", 0)
    try:
        for host in ("127.0.0.1", "::1", "localhost"):
            reader, writer = await asyncio.open_connection(host, outside)
            writer.write(b"you")
            assert await reader.read() == b"hi you"
            writer.close()
        reader, writer = await dial(agent_address, TOKEN, port)
        writer.write(b"dial")
        assert await reader.read() == b"hi dial"
        writer.close()
    finally:
        forward.close()
        server.close()


async def test_a_closed_port_inside(agent_address):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unavailable, match=str(port)):
        await Agent(agent_address, TOKEN).open_tunnel(port)
