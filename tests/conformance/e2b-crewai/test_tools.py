"""CrewAI's own tools for E2B, with ``tupper serve`` as E2B."""

import base64

import pytest
from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool
from e2b import Sandbox

pytestmark = pytest.mark.usefixtures("e2b_server")


@pytest.fixture(scope="module")
def sandbox(e2b_server):
    made = Sandbox.create(timeout=600)
    yield made
    made.kill()


def test_a_command_in_a_sandbox_of_its_own():
    tool = E2BExecTool(envs={"WHO": "you"})
    done = tool.run(command="echo out $WHO; echo err >&2", cwd="/tmp")
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (0, "out you\n", "err\n")


def test_a_command_that_fails(sandbox):
    done = E2BExecTool(sandbox_id=sandbox.sandbox_id).run(command="echo oops >&2; exit 3")
    assert (done["exit_code"], done["stderr"]) == (3, "oops\n")


def test_one_sandbox_for_many_calls():
    tool = E2BExecTool(persistent=True)
    try:
        tool.run(command="echo kept > /tmp/kept")
        assert tool.run(command="cat /tmp/kept")["stdout"] == "kept\n"
    finally:
        tool.close()


def test_files(sandbox):
    tool = E2BFileTool(sandbox_id=sandbox.sandbox_id)
    data = base64.b64encode(b"\x00\xff").decode()
    tool.run(action="mkdir", path="/tmp/d")
    tool.run(action="write", path="/tmp/d/text", content="grüße")
    tool.run(action="write", path="/tmp/d/bytes", content=data, binary=True)
    assert tool.run(action="read", path="/tmp/d/text")["content"] == "grüße"
    assert tool.run(action="read", path="/tmp/d/bytes", binary=True)["content"] == data
    listed = tool.run(action="list", path="/tmp/d")
    assert sorted(entry["name"] for entry in listed["entries"]) == ["bytes", "text"]
    tool.run(action="append", path="/tmp/d/text", content="!")
    assert tool.run(action="read", path="/tmp/d/text")["content"] == "grüße!"
    assert tool.run(action="info", path="/tmp/d/text")["name"] == "text"
    assert tool.run(action="exists", path="/tmp/d/text")["exists"] is True
    tool.run(action="delete", path="/tmp/d/text")
    assert tool.run(action="exists", path="/tmp/d/text")["exists"] is False


def test_python():
    tool = E2BPythonTool(persistent=True)
    try:
        tool.run(code="x = 20")
        done = tool.run(code="print('said'); x + 1")
        assert done["text"] == "21"
        assert "".join(done["logs"]["stdout"]) == "said\n"
        assert tool.run(code="1 / 0")["error"]["name"] == "ZeroDivisionError"
    finally:
        tool.close()
