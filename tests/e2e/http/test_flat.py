"""Clients that send nonsense, stop in the middle or do not read cost the server no memory."""

import contextlib
import json
import re
import socket
import struct
import time
from pathlib import Path

import pytest

MIB = 1024 * 1024
# What the allocator and the caches of a process that has just begun may still take.
ROOM_MIB = 48


class Server:
    """The server as a client sees it, and its memory."""

    def __init__(self, served):
        host, _, port = served.url.removeprefix("http://").partition(":")
        self.address, self.key = (host, int(port)), served.key
        self.pid = json.loads(self.say("GET", "/tupper/v1/info")[1])["pid"]

    def open(self, head, body=b""):
        connection = socket.create_connection(self.address, timeout=60)
        connection.sendall(head.encode() + b"\r\n" + body)
        return connection

    def head(self, method, path, *fields):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"X-API-KEY: {self.key}", *fields]
        return "".join(f"{line}\r\n" for line in lines)

    def say(self, method, path, body=b"", *fields):
        """(status, body) of one request on a connection of its own."""
        more = ("Connection: close", f"Content-Length: {len(body)}", *fields)
        with self.open(self.head(method, path, *more), body) as connection:
            return read(connection)

    def memory_mib(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def read(connection):
    with connection.makefile("rb") as stream:
        head, _, body = stream.read().partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


@pytest.fixture(scope="module")
def server(served):
    return Server(served)


@pytest.fixture(scope="module")
def made(server):
    status, body = server.say("POST", "/sandboxes", b'{"timeout": 1200}')
    assert status == 201, body
    sandbox = json.loads(body)
    yield sandbox
    server.say("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


def edge(made, port=49983):
    return (
        f"E2b-Sandbox-Id: {made['sandboxID']}", f"E2b-Sandbox-Port: {port}",
        f"X-Access-Token: {made['envdAccessToken']}",
    )  # fmt: skip


FRAMES = (
    b"", b"\x00", b"\x00\x00\x00\x00\x05{}", b"\x00\xff\xff\xff\xff{}", b"\x01\x00\x00\x00\x02{}",
    b"\x00\x00\x00\x00\x02[]", b"\x00\x00\x00\x00\x04\xff\xfe\xfd\xfc", b"{}", b"\x02\x00\x00\x00\x02{}",
    b"\x00\x00\x00\x00\x10" + b'{"process":null}',
)  # fmt: skip


def test_malformed_connect_frames(server, made):
    before = server.memory_mib()
    for _ in range(10):
        for frame in FRAMES:
            fields = (*edge(made), "Content-Type: application/connect+json")
            status, body = server.say("POST", "/process.Process/Start", frame, *fields)
            assert status == 200
            flags, size = struct.unpack_from(">BI", body)
            said = json.loads(body[5 : 5 + size])
            assert flags == 2
            assert isinstance(said["error"]["code"], str), said
            assert isinstance(said["error"].get("message", ""), str), said
        for frame in (b"{", b"[]", b'{"path": 1}', b"\xff"):
            fields = (*edge(made), "Content-Type: application/json")
            status, body = server.say("POST", "/filesystem.Filesystem/Stat", frame, *fields)
            assert (status, json.loads(body)["code"]) == (400, "invalid_argument"), frame
    assert server.memory_mib() < before + ROOM_MIB


def test_wrong_tokens(server, made):
    wrong = [*edge(made)[:2], "X-Access-Token: wrong"]
    status, body = server.say("POST", "/process.Process/List", b"{}", *wrong)
    assert (status, json.loads(body)["code"]) == (401, 401)
    status, body = server.say("GET", "/files?path=/etc/passwd", b"", *wrong)
    assert (status, json.loads(body)["code"]) == (401, 401)


def test_slow_readers_and_writers(server, made):
    """Thirty that read nothing of 64 MiB each, thirty that send half of what they announced."""
    path = f"/sandboxes/{made['sandboxID']}"
    command = b'{"command": "head -c 67108864 /dev/zero > /tmp/large", "user": "root"}'
    assert server.say("POST", f"{path}/commands", command)[0] == 200
    before = server.memory_mib()
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            for head in (
                server.head("GET", f"{path}/files?path=/tmp/large"),
                server.head("GET", "/files?path=/tmp/large", *edge(made)),
                server.head(
                    "POST", f"{path}/commands", "Accept: text/event-stream", "Content-Length: 38"
                ),
            ):
                body = b'{"command": "cat /tmp/large; sleep 9"}' if "commands" in head else b""
                stack.enter_context(server.open(head, body))
            for head in (
                server.head("PUT", f"{path}/files?path=/tmp/half", "Content-Length: 999999999"),
                server.head("POST", "/files?path=/tmp/h", *edge(made), "Content-Length: 999999999"),
                server.head("POST", "/sandboxes", "Content-Length: 4000000"),
            ):
                stack.enter_context(server.open(head, b"x" * 100_000))
        end = time.monotonic() + 5  # long enough for a server that reads ahead to have done so
        while time.monotonic() < end:
            assert server.memory_mib() < before + ROOM_MIB + 60
            assert server.say("GET", "/health")[0] == 200
            time.sleep(0.2)
    status, body = server.say("POST", f"{path}/commands", b'{"command": "echo fine"}')
    assert (status, json.loads(body)["stdout"]) == (200, "fine\n")
