"""What of the host may be touched, who may connect, what is printed for clients."""

import json
import tomllib

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from starlette.testclient import TestClient

from tupper.mcp.clients import CLIENTS, Server
from tupper.mcp.http import Place, build_app, check
from tupper.mcp.server import build_server
from tupper.mcp.sessions import Options
from tupper.mcp.tools_copy import allowed
from tupper.sdk._shared.errors import InvalidArgumentException

STDIO = Server(command=('/opt/a "b"/tupper', "mcp", "--share", "."))
HTTP = Server(url="http://127.0.0.1:1/mcp", token_variable="TOKEN")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize("path", ["a.txt", "sub/new", "."])
def test_paths_in_a_shared_directory_are_allowed(tmp_path, path):
    share = {str(tmp_path): True}
    assert allowed(path, share, writing=True) == (tmp_path / path).resolve()
    assert allowed(str(tmp_path / path), share, writing=False) == (tmp_path / path).resolve()


def test_paths_elsewhere_are_refused_links_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    for path in ("../outside", "link", "link/x", "/etc/passwd", str(outside), "sub/../../outside"):
        with pytest.raises(ToolError, match="not in a shared directory"):
            allowed(path, {str(inside): True}, writing=False)


def test_a_directory_that_is_shared_for_reading_is_not_written_to(tmp_path):
    assert allowed("a", {str(tmp_path): False}, writing=False)
    with pytest.raises(ToolError, match="for reading only"):
        allowed("a", {str(tmp_path): False}, writing=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_network_needs_a_token(host):
    with pytest.raises(InvalidArgumentException, match="token is needed"):
        check(Place(host))
    check(Place(host, token="secret"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_needs_none(host):
    check(Place(host))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "bearer secret"}, 401),
        ({"Authorization": "Bearer sécret"}, 401),
        ({"Authorization": "Bearer secret", "Host": "evil.example"}, 421),
        ({"Authorization": "Bearer secret", "Origin": "http://evil.example"}, 403),
        ({"Authorization": "Bearer secret", "Host": "my.host:7"}, 400),
        ({"Authorization": "Bearer secret", "Origin": "https://my.page"}, 400),
    ],
)
def test_who_may_come_over_http(headers, status):
    place = Place(token="secret", hosts=["my.host"], origins=["https://my.page"])
    headers = {"Accept": "application/json, text/event-stream"} | headers
    raw = {name: value.encode() for name, value in headers.items()}
    app = build_app(build_server(Options()), place)
    with TestClient(app, base_url="http://127.0.0.1:1") as client:
        answer = client.post("/mcp", json=PING, headers=raw)
    assert answer.status_code == status  # 400: let through, and refused for want of a session
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode"])
def test_configuration_as_json(client):
    render, _ = CLIENTS[client]
    top = "servers" if client == "vscode" else "mcpServers"
    entry = json.loads(render(STDIO))[top]["tupper"]
    assert [entry["command"], *entry["args"]] == list(STDIO.command)
    assert entry.get("type", "stdio") == "stdio"
    entry = json.loads(render(HTTP))[top]["tupper"]
    assert entry["url"] == HTTP.url
    assert "TOKEN}" in entry["headers"]["Authorization"]
    assert "headers" not in json.loads(render(Server(url="http://x")))[top]["tupper"]


def test_configuration_as_toml():
    render, _ = CLIENTS["codex"]
    entry = tomllib.loads(render(STDIO))["mcp_servers"]["tupper"]
    assert [entry["command"], *entry["args"]] == list(STDIO.command)
    entry = tomllib.loads(render(HTTP))["mcp_servers"]["tupper"]
    assert (entry["url"], entry["bearer_token_env_var"]) == (HTTP.url, "TOKEN")
