"""``docs/http.md`` does what it says, and the plain routes where it says nothing."""

import contextlib
import json
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

DOC = Path(__file__).parents[3] / "docs" / "http.md"
_EXAMPLE = re.compile(r"```sh\n((?:(?!```).)*)```\n```text\n(.*?)```", re.DOTALL)


def test_every_example_prints_what_stands_below_it(served):
    examples = _EXAMPLE.findall(DOC.read_text())
    assert len(examples) >= 8
    for example, printed in examples:
        script = example.replace("http://127.0.0.1:3000", served.url)
        done = subprocess.run(
            ["bash", "-c", script],
            env={"PATH": "/usr/bin:/bin", "TUPPER_KEY": served.key, "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout.rstrip("\n") == printed.rstrip("\n"), (script, done.stderr)


@pytest.fixture
def ask(served):
    """(method, path, body) → (status, answer)."""

    def call(method, path, body=None, **headers):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            served.url + path,
            data=data,
            method=method,
            headers={"X-API-KEY": served.key, **headers},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    return call


@pytest.fixture
def sandbox(ask):
    """The path of a new sandbox."""
    status, made = ask("POST", "/sandboxes")
    assert status == 201, made
    path = f"/sandboxes/{json.loads(made)['sandboxID']}"
    yield path
    ask("DELETE", path)


def run(ask, sandbox, **command):
    status, body = ask("POST", f"{sandbox}/commands", command)
    assert status == 200, body
    return json.loads(body)


def test_commands(ask, sandbox):
    assert run(ask, sandbox, command=["printf", "%s", "$HOME"])["stdout"] == "$HOME"
    assert run(ask, sandbox, command="pwd; id -un", cwd="/tmp", user="root")["stdout"] == (
        "/tmp\nroot\n"
    )
    assert run(ask, sandbox, command="cat", stdin="ä" * 100_000)["stdout"] == "ä" * 100_000
    late = run(ask, sandbox, command="echo first; sleep 600", timeout=1)
    assert (late["stdout"], late["timed_out"]) == ("first\n", True)
    assert run(ask, sandbox, command="kill -9 $$")["exit_code"] == 137
    large = run(ask, sandbox, command="head -c 9000000 /dev/zero | tr '\\0' x")
    assert (len(large["stdout"]), large["dropped_bytes"]) == (8388608, 611392)
    status, body = ask("POST", f"{sandbox}/commands", {"command": "sleep 601", "background": True})
    assert status == 202
    found = run(ask, sandbox, command=["kill", "-0", str(json.loads(body)["pid"])])
    assert found["exit_code"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {}, {"command": ""}, {"command": []}, {"command": [1]}, {"command": 1}, {"command": "a\0"},
        {"command": "true", "timeout": 0}, {"command": "true", "comand": 1},
        {"command": "true", "cwd": "/nowhere"}, {"command": "true", "user": "nobody-here"},
        {"command": "cat", "stdin": "x", "background": True},
    ],
)  # fmt: skip
def test_commands_that_cannot_be(ask, sandbox, body):
    for accept in ("*/*", "text/event-stream"):
        status, answer = ask("POST", f"{sandbox}/commands", body, Accept=accept)
        assert (status, json.loads(answer)["code"]) == (400, 400), answer


def _hang_up(served, sandbox, accept, mark):
    host, _, port = served.url.removeprefix("http://").partition(":")
    body = json.dumps({"command": f"echo {mark}; exec sleep {mark}", "timeout": None}).encode()
    with contextlib.closing(socket.create_connection((host, int(port)), timeout=60)) as connection:
        connection.sendall(
            f"POST {sandbox}/commands HTTP/1.1\r\nHost: x\r\nX-API-KEY: {served.key}\r\n"
            f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        yield connection


@pytest.mark.parametrize(("accept", "mark"), [("*/*", "7001"), ("text/event-stream", "7002")])
def test_who_hangs_up_ends_the_command(served, ask, sandbox, accept, mark):
    def runs():
        return (
            mark in run(ask, sandbox, command="cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]
        )

    def wait_for(condition):
        end = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < end, "the condition did not come true"
            time.sleep(0.1)

    for _ in _hang_up(served, sandbox, accept, mark):
        wait_for(runs)
    wait_for(lambda: not runs())


def test_files(ask, sandbox):
    data = bytes(range(256)) * 40_000
    status, body = ask("PUT", f"{sandbox}/files?path=%2Ftmp%2Fd%20e%2Ff&user=root", data)
    assert (status, json.loads(body)["path"]) == (200, "/tmp/d e/f")
    assert ask("GET", f"{sandbox}/files?path=/tmp/d+e/f") == (200, data)
    owner = run(ask, sandbox, command=["stat", "-c", "%U", "/tmp/d e/f"])
    assert owner["stdout"] == "root\n"
    assert ask("PUT", f"{sandbox}/files?path=empty", b"")[0] == 200
    assert ask("GET", f"{sandbox}/files?path=empty") == (200, b"")
    assert ask("GET", f"{sandbox}/files?path=/proc/self/status")[1].startswith(b"Name:")
    for method, path, wanted in (
        ("GET", "?path=nothing", 404),
        ("GET", "?path=/tmp", 400),
        ("GET", "", 400),
        ("GET", "?path=a%00b", 400),
        ("GET", "?path=a&user=nobody-here", 400),
        ("PUT", "?path=/tmp", 400),
        ("PUT", "?path=/proc/version", 400),
    ):
        status, body = ask(method, f"{sandbox}/files{path}", b"x" if method == "PUT" else None)
        assert status == json.loads(body)["code"], path
        assert status == wanted or (path == "?path=/proc/version" and status >= 400), (path, body)


def test_paused_sandboxes(ask):
    made = {}
    for resumes in (False, True):
        lasting = {"templateID": "base", "timeout": 600, "autoPause": True}
        status, body = ask("POST", "/sandboxes", {**lasting, "autoResume": {"enabled": resumes}})
        assert status == 201, body
        made[resumes] = path = f"/sandboxes/{json.loads(body)['sandboxID']}"
        assert run(ask, path, command="echo kept > f")["exit_code"] == 0
        status, body = ask("POST", f"{path}/pause", {})
        assert status == 204, body
    status, body = ask("POST", f"{made[False]}/commands", {"command": "cat f"})
    assert (status, json.loads(body)["error_code"]) == (409, "conflict")
    assert ask("GET", f"{made[False]}/files?path=f")[0] == 409
    assert ask("GET", f"{made[True]}/files?path=f") == (200, b"kept\n")
    for path in made.values():
        assert ask("DELETE", path)[0] == 204


def test_create_in_plain_words(ask):
    status, body = ask("POST", "/sandboxes", {"memory_mib": 256, "cpus": 1, "metadata": {"a": "b"}})
    assert status == 201, body
    path = f"/sandboxes/{json.loads(body)['sandboxID']}"
    got = json.loads(ask("GET", path)[1])
    assert (got["memoryMB"], got["cpuCount"], got["metadata"]) == (256, 1, {"a": "b"})
    assert ask("DELETE", path)[0] == 204
    for wrong in ({"memory": 1}, {"template": "a", "templateID": "b"}, {"memory_mib": "1g"}):
        assert ask("POST", "/sandboxes", wrong)[0] == 400, wrong
    assert ask("POST", "/sandboxes", {"template": "no-such"})[0] == 404
