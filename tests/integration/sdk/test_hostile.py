"""TB107: an agent that lies. The socket is the guest's; whoever listens there may say anything."""

import contextlib
import json
import re
import resource
import socket
import struct
import threading

import pytest

from tupper import ProtocolException, Sandbox, SandboxException
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.info import Grant
from tupper.sdk._sync.control import Control

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nConnection: close\r\n\r\n"
UNARY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
HEALTHY = b"HTTP/1.1 204 No Content\r\n\r\n"


def frame(value, flags=0):
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">BI", flags, len(payload)) + payload


START = frame({"event": {"start": {"pid": 7}}})
END = frame({"event": {"end": {"exited": True, "status": "exit status 0"}}})
FINAL = frame({}, 2)


def _request(connection):
    """A whole request: to close while its end is on the way would be another fault."""
    request = b""
    while not _is_whole(request):
        piece = connection.recv(65536)
        if not piece:
            return request
        request += piece
    return request


def _is_whole(request):
    head, end, body = request.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    size = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    return bool(end) and len(body) >= (int(size[1]) if size else 0)


class Liar:
    """Answers /health well and everything else with what the test says."""

    def __init__(self, path):
        self.answer = b""
        self.endless = b""
        self.closing = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        while True:
            connection, _ = self.listener.accept()
            if self.closing.is_set():
                connection.close()
                return
            with connection, contextlib.suppress(OSError):
                request = _request(connection)
                if request.startswith(b"GET /health"):
                    connection.sendall(HEALTHY)
                    continue
                connection.sendall(self.answer)
                while self.endless:
                    connection.sendall(self.endless)

    def close(self, path):
        self.closing.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        self.thread.join(20)
        self.listener.close()


@pytest.fixture
def liar(tmp_path_factory, control):
    path = tmp_path_factory.mktemp("l") / "s"
    made = Liar(path)
    made.sandbox = Sandbox(Control(find_target({})), Grant("i" + "1" * 20, "tok", str(path)))
    yield made
    made.sandbox.close()
    made.close(path)


@pytest.mark.parametrize(
    "frames",
    [
        struct.pack(">BI", 0, 2**32 - 1) + b"x" * 100,
        START + struct.pack(">BI", 0, 2**32 - 1),
        START + frame({}, 123),
        START + frame({"event": {}}, 1),
        START + frame(b"\xff\xfe not utf-8"),
        START + frame(b"[" * 10000 + b"]" * 10000),
        START + frame({"event": {"data": {"stdout": "*** no base64"}}}),
        START + frame({"event": {"data": {"stdout": 5}}}),
        START + START,
        END,
        frame({"event": {"start": {"pid": -4}}}),
        frame({"event": {"start": {"pid": 2**80}}}),
        START + frame([1, 2, 3]),
    ],
)
def test_streams_that_no_honest_agent_sends(liar, frames):
    liar.answer = STREAM + frames
    with pytest.raises(SandboxException) as caught:
        liar.sandbox.commands.run("x", timeout=5)
    assert str(liar.sandbox._grant.socket) not in str(caught.value)


def test_of_two_ends_the_first_is_believed(liar):
    liar.answer = STREAM + START + END + frame({"event": {"end": {"exitCode": 9}}}) + FINAL
    assert liar.sandbox.commands.run("x").exit_code == 0


@pytest.mark.parametrize(
    "body",
    [b"not json", b"\xff", b"[" * 5000, b"[]", b'{"entries": 3}', b'{"entries": [3]}',
     b'{"entries": [{"size": "1e9"}]}', b'{"entries": [{"name": "\\ud800"}]}'],
)  # fmt: skip
def test_answers_that_no_honest_agent_sends(liar, body):
    liar.answer = UNARY + body
    with pytest.raises(ProtocolException):
        liar.sandbox.files.list("/")


def test_a_flood_is_bounded(liar):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    piece = frame({"event": {"data": {"stdout": "eXl5" * 8000}}})
    liar.answer, liar.endless = STREAM + START, piece * 40
    handle = liar.sandbox.commands.run("x", background=True, timeout=2)
    with pytest.raises(SandboxException):
        handle.wait()
    handle.disconnect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


def test_an_endless_listing_is_bounded(liar):
    liar.answer, liar.endless = UNARY + b'{"entries":[', b'{"name":"x"},' * 5000
    with pytest.raises(SandboxException):
        liar.sandbox.files.list("/")


def test_headers_without_end(liar):
    liar.answer, liar.endless = b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 60000 + b"\r\n"
    with pytest.raises(SandboxException):
        liar.sandbox.files.read("/x")
