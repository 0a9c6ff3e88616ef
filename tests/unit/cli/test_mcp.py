"""The command line of the MCP server: what it reads and prints. Serving is tested in e2e."""

import json

import click
import pytest
from click.testing import CliRunner

from tupper.cli.mcp import mcp, read_listen, read_share


def test_shared_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").mkdir()
    assert read_share(".") == (str(tmp_path), False)
    assert read_share(".:rw") == (str(tmp_path), True)
    assert read_share("a:b") == (str(tmp_path / "a:b"), False)
    with pytest.raises(click.BadParameter, match="not a directory"):
        read_share("nothing:rw")


def test_addresses():
    assert read_listen("127.0.0.1:0") == ("127.0.0.1", 0)
    assert read_listen("[::1]:80") == ("::1", 80)
    for value in ("80", ":80", "host:", "host:x", "host:70000"):
        with pytest.raises(click.BadParameter, match="HOST:PORT"):
            read_listen(value)


def test_configuration_has_the_options_behind_the_dashes():
    done = CliRunner().invoke(mcp, ["config", "cursor", "--", "--no-internet", "--share", "/x"])
    assert done.exit_code == 0
    entry = json.loads(done.stdout)["mcpServers"]["tupper"]
    assert entry["args"] == ["mcp", "--no-internet", "--share", "/x"]
    assert "paste it into .cursor/mcp.json" in done.stderr


def test_configuration_of_a_server_over_http():
    done = CliRunner().invoke(
        mcp, ["config", "vscode", "--url", "http://h:1/mcp", "--with-token"]
    )  # fmt: skip
    entry = json.loads(done.stdout)["servers"]["tupper"]
    assert entry["type"] == "http"
    assert entry["headers"]["Authorization"] == "Bearer ${env:TUPPER_MCP_TOKEN}"


def test_an_unknown_client_is_a_usage_error():
    done = CliRunner().invoke(mcp, ["config", "emacs"])
    assert done.exit_code == 2
    assert "claude-code" in done.stderr
