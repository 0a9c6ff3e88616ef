"""A real ``tupper mcp`` on pipes, and clients that vanish."""

import json
import os
import signal
import subprocess

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from e2e.mcp.serving import SERVE, Caller, running, wait_until

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Raw:
    """A client without manners: lines of JSON on the pipes of a server."""

    def __init__(self, server):
        self.server = server
        self.ask(0, "initialize", HELLO)
        self.answer(0)
        self.tell("notifications/initialized")

    def tell(self, method, params=None, **more):
        line = {
            "jsonrpc": "2.0",
            "method": method,
            **({"params": params} if params else {}),
            **more,
        }
        self.server.stdin.write(json.dumps(line).encode() + b"\n")
        self.server.stdin.flush()

    def ask(self, number, method, params):
        self.tell(method, params, id=number)

    def call(self, number, name, **arguments):
        self.ask(number, "tools/call", {"name": name, "arguments": arguments})

    def answer(self, number):
        while True:
            line = self.server.stdout.readline()
            assert line, "the server ended"
            message = json.loads(line)
            if message.get("id") == number:
                return message


@pytest.fixture
def raw():
    with subprocess.Popen(SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            yield Raw(server)
        finally:
            server.kill()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_over_stdio(mode):
    parameters = StdioServerParameters(command=SERVE[0], args=list(SERVE[1:]), env=dict(os.environ))
    async with Client(stdio_client(parameters), mode=mode) as client:
        call = Caller(client)
        done = await call("run_command", command="echo hi")
        assert done["stdout"] == "hi\n"
        assert (await call("run_command", command="true"))["sandbox"] == done["sandbox"]
    wait_until(lambda: running() == set(), "the sandbox ends with the client")


def vanish_by_closing(server):
    server.stdin.close()


def vanish_by_kill(server):
    server.kill()


def vanish_by_term(server):
    server.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("vanish", [vanish_by_closing, vanish_by_kill, vanish_by_term])
def test_a_client_that_vanishes_in_a_call_leaves_nothing(raw, vanish):
    raw.call(1, "run_command", command="true")
    assert not raw.answer(1)["result"]["isError"]
    assert len(running()) == 1
    raw.call(2, "run_command", command="sleep 1000", background=True)
    raw.answer(2)
    raw.call(3, "run_command", command="sleep 1000")
    vanish(raw.server)
    raw.server.wait(timeout=60)
    wait_until(lambda: running() == set(), "the sandbox ends with the client")


def test_lines_that_are_no_messages_do_not_end_the_server(raw):
    for line in (b"\xff\xfe\n", b"{}\n", b"[1, 2\n", b'{"jsonrpc": "2.0", "id": 9}\n', b"\n"):
        raw.server.stdin.write(line)
    raw.call(1, "run_command", command=7)
    answer = raw.answer(1)["result"]
    assert answer["isError"]
    assert "command:" in answer["content"][0]["text"]
    raw.call(2, "list_sandboxes")
    assert raw.answer(2)["result"]["structuredContent"]["sandboxes"] == []
