"""Clients over HTTP that vanish in the middle of a call."""

import contextlib
import subprocess
import sys

from mcp import Client

from e2e.mcp.serving import Caller, over_http, running, wait_until
from tupper import Sandbox

CLIENT = """
import asyncio, sys
from mcp import Client

async def main(url, mode):
    async with Client(url, mode=mode) as client:
        made = await client.call_tool("create_sandbox", {})
        sandbox = made.structured_content["sandbox"]
        print(sandbox, flush=True)
        arguments = {"command": "echo here; exec sleep 1000", "sandbox": sandbox}
        await client.call_tool("run_command", arguments)

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.contextmanager
def a_call_under_way(url, mode):
    """(the client's process, the sandbox in which its command runs)."""
    command = [sys.executable, "-c", CLIENT, url, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            sandbox = Sandbox.connect(client.stdout.readline().strip())
            wait_until(lambda: sleeps(sandbox), "the command begins")
            yield client, sandbox
        finally:
            client.kill()


def sleeps(sandbox):
    done = sandbox.commands.run("ps | grep -c 'slee[p] 1000' || true")
    return done.stdout.strip() != "0"


async def test_without_a_session_the_command_ends_with_its_request():
    with over_http() as url:
        with a_call_under_way(url, "auto") as (client, sandbox):
            client.kill()
            wait_until(lambda: not sleeps(sandbox), "the command ends")
        async with Client(url) as other:
            assert len((await Caller(other)("list_sandboxes"))["sandboxes"]) == 1
    wait_until(lambda: running() == set(), "the sandboxes end with the server")


async def test_in_a_session_the_command_goes_on_until_the_session_ends():
    with over_http() as url, a_call_under_way(url, "legacy") as (client, sandbox):
        client.kill()
        client.wait()
        async with Client(url, mode="legacy") as other:
            assert (await Caller(other)("list_sandboxes"))["sandboxes"] == []
        assert sleeps(sandbox)
    wait_until(lambda: running() == set(), "the sandboxes end with the server")
