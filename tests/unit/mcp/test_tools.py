"""What the list of tools says of itself; calls that do not fit; no sandbox is made for these."""

import pytest
from mcp import Client

from tupper.mcp.server import build_server
from tupper.mcp.sessions import Options

READ_ONLY = {"poll_command", "read_file", "list_files", "search_files", "list_sandboxes"}
HARMLESS = READ_ONLY | {"create_sandbox", "snapshot_sandbox", "expose_port"}


async def tools_of(options, mode="auto"):
    async with Client(build_server(options), mode=mode) as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


async def said(name, arguments, options=None):
    async with Client(build_server(options or Options())) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    return result.content[0].text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_says_what_it_does_takes_and_gives(mode):
    tools = await tools_of(Options(share={"/": False}), mode)
    assert 12 <= len(tools) <= 16
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert "ctx" not in tool.input_schema["properties"]
        assert tool.output_schema["type"] == "object"


async def test_annotations_say_what_can_be_lost():
    tools = await tools_of(Options(share={"/": False}))
    assert {n for n, t in tools.items() if t.annotations.read_only_hint} == READ_ONLY
    assert {n for n, t in tools.items() if not t.annotations.destructive_hint} == HARMLESS


async def test_without_shared_directories_no_tool_touches_the_host():
    assert "copy_files" not in await tools_of(Options())


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("run_comand", {}, ["Unknown tool: run_comand", "run_command"]),
        ("run_command", {"cmd": "true"}, ["no argument 'cmd'", "command, cwd"]),
        ("run_command", {}, ["command: is missing"]),
        ("run_command", {"command": ["ls"]}, ["command:", "string", "['ls']"]),
        ("run_command", {"command": "ls", "timeout_s": "soon"}, ["timeout_s:", "number", "'soon'"]),
        ("run_command", {"command": "ls", "max_chars": 1}, ["max_chars:", "100"]),
        ("poll_command", {"command_id": "c1"}, ["no command 'c1'", "none"]),
        ("kill_command", {"command_id": "c1"}, ["no command 'c1'"]),
        ("read_file", {"path": "a", "sandbox": "nope"}, ["no sandbox 'nope'", "list_sandboxes"]),
        ("write_file", {"path": "a", "content": "ä", "encoding": "base64"}, ["not base64"]),
        ("search_files", {}, ["`pattern`, `glob` or both"]),
        ("create_sandbox", {"template": "a", "image": "b"}, ["one of template, image"]),
        ("kill_sandbox", {}, ["nothing to end"]),
        ("expose_port", {"port": 70000}, ["port:", "65535"]),
    ],
)
async def test_a_call_that_does_not_fit_says_how_it_would(name, arguments, words):
    text = await said(name, arguments)
    assert all(word in text for word in words), text


async def test_what_the_user_forbade_is_refused():
    text = await said("create_sandbox", {"internet": True}, Options(internet=False))
    assert "--no-internet" in text
    text = await said("kill_sandbox", {"sandbox": "mine"}, Options(sandbox="mine"))
    assert "is not ended by it" in text
