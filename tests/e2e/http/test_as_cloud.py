"""``backend="e2b"``: the same code on E2B's cloud, played by ``tupper serve`` behind a listener.

The listener hears every request: none may be one that only a tupper answers.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.parse

import pytest

from tupper import AsyncSandbox, Sandbox, SandboxNotRunningException, UnsupportedException

_REQUEST = re.compile(rb"(?:GET|POST|PUT|DELETE|PATCH) (\S+) HTTP/1\.1\r\n")


class Wire:
    """Passes connections on and remembers what clients said."""

    def __init__(self, host, port):
        self.there = host, port
        self.said = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = []
        self.open = []

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        for each in (self.listener, *self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self.threads:
            thread.join(20)

    def _start(self, work, *arguments):
        self.threads.append(threading.Thread(target=work, args=arguments))
        self.threads[-1].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(self.there)
                self.open += [client, server]
                said = bytearray()
                self.said.append(said)
                self._start(self._pass, client, server, said)
                self._start(self._pass, server, client, bytearray())

    def _pass(self, source, target, said):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                said += piece
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def paths(self):
        return [path.decode() for said in self.said for path in _REQUEST.findall(bytes(said))]


@pytest.fixture
def wire(served, monkeypatch):
    parts = urllib.parse.urlsplit(served.url)
    with Wire(parts.hostname, parts.port) as wire:
        monkeypatch.setenv("E2B_API_URL", wire.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", wire.url)
        monkeypatch.setenv("E2B_API_KEY", served.key)
        yield wire
        paths = wire.paths()
        assert paths
        assert [path for path in paths if path.startswith("/tupper")] == []
        assert not any(b'"tupper"' in said for said in wire.said)


def test_the_same_code(wire, tmp_path):
    with Sandbox.create(backend="e2b", metadata={"a": "b"}, envs={"WHO": "you"}) as box:
        assert box.commands.run("echo hello $WHO").stdout == "hello you\n"
        box.files.write("notes/a.txt", "text")
        assert box.files.read("notes/a.txt") == "text"
        assert [entry.name for entry in box.files.list("notes")] == ["a.txt"]
        box.files.download("notes/a.txt", tmp_path / "a.txt")
        assert (tmp_path / "a.txt").read_text() == "text"
        background = box.commands.run("cat", background=True, stdin=True)
        box.commands.send_stdin(background.pid, "typed\n")
        box.commands.close_stdin(background.pid)
        assert background.wait().stdout == "typed\n"
        info = box.get_info()
        assert (info.backend, info.metadata) == ("e2b", {"a": "b"})
        box.set_timeout(60)
        assert box.get_host(8000).startswith(f"8000-{box.sandbox_id}.")
        again = Sandbox.connect(box.sandbox_id, api_url="e2b:")
        assert again.commands.run("cat notes/a.txt").stdout == "text"
        again.close()
        assert box.pause() is True
        box.connect()
        for call in (box.get_log, lambda: box.set_idle_timeout(5)):
            with pytest.raises(UnsupportedException):
                call()
        with pytest.raises(UnsupportedException):
            box.files.upload(tmp_path, "tree")
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")


async def test_the_async_half(wire):
    async with await AsyncSandbox.create(backend="e2b") as box:
        assert (await box.commands.run("echo there")).stdout == "there\n"
        listed = await AsyncSandbox.list(api_url="e2b:").next_items()
        assert [(info.sandbox_id, info.backend) for info in listed] == [(box.sandbox_id, "e2b")]


def test_the_command_line(wire):
    def tupper(*arguments, **env):
        return subprocess.run(
            [sys.executable, "-m", "tupper", *arguments],
            env={**os.environ, **env}, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    done = tupper("run", "--backend", "e2b", "--", "echo", "far away")
    assert (done.returncode, done.stdout) == (0, "far away\n"), done.stderr
    name = tupper("create", "--backend", "e2b").stdout.strip()
    there = {"TUPPER_URL": "e2b:"}
    assert "e2b" in tupper("info", name, **there).stdout
    assert tupper("exec", name, "--", "echo", "again", **there).stdout == "again\n"
    assert tupper("kill", name, **there).stdout == name + "\n"
