"""Clients of the MCP server: in this process, or of a real ``tupper mcp``."""

import contextlib
import os
import re
import subprocess
import sys
import time

from mcp import Client

from tupper import Sandbox
from tupper.mcp.server import build_server
from tupper.mcp.sessions import Options

SERVE = (sys.executable, "-m", "tupper", "mcp", "--template", "minimal")


class Caller:
    """Calls tools and gives what came: the structure, or the text of an error."""

    def __init__(self, client):
        self.client = client

    async def __call__(self, name, /, **arguments):
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    async def fails(self, name, /, **arguments):
        result = await self.client.call_tool(name, arguments)
        assert result.is_error, result.structured_content
        return result.content[0].text


@contextlib.asynccontextmanager
async def serving(mode="auto", **options):
    """A server in this process, whose sandboxes are of the small template, and a client of it."""
    server = build_server(Options(**{"template": "minimal"} | options))
    async with Client(server, mode=mode) as client:
        yield Caller(client)


@contextlib.contextmanager
def over_http(*options, token=""):
    """A real server; its URL."""
    command = [*SERVE, "--http", "--listen", "127.0.0.1:0", *options]
    env = os.environ | {"TUPPER_MCP_TOKEN": token}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as server:
        try:
            said = server.stderr.readline()
            yield re.search(r"http://\S+", said)[0]
        finally:
            server.terminate()
            server.communicate(timeout=30)


def running():
    """The ids of all sandboxes."""
    return {info.sandbox_id for info in Sandbox.list().next_items()}


def wait_until(is_so, what, limit_s=30):
    """Wait for something that another process does."""
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        time.sleep(0.02)
