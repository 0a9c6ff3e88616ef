"""LangChain's suites for tools, on each of ours, and what each says."""

import pytest
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from tupper import Sandbox
from tupper.integrations.langchain import sandbox_tools


@pytest.fixture(scope="module")
def tools():
    with Sandbox.create(timeout=1800) as sandbox:
        yield {tool.name: tool for tool in sandbox_tools(sandbox, max_chars=1000)}


class Ours:
    name = ""

    @pytest.fixture(autouse=True)
    def given(self, tools):
        self.made = tools[self.name]

    @property
    def tool_constructor(self):
        return self.made


class RunCommand(Ours):
    name = "run_command"
    tool_invoke_params_example = {"command": "uname -s"}


class TestRunCommandUnit(RunCommand, ToolsUnitTests):
    pass


class TestRunCommandIntegration(RunCommand, ToolsIntegrationTests):
    pass


class ReadFile(Ours):
    name = "read_file"
    tool_invoke_params_example = {"path": "/etc/passwd"}


class TestReadFileUnit(ReadFile, ToolsUnitTests):
    pass


class TestReadFileIntegration(ReadFile, ToolsIntegrationTests):
    pass


class WriteFile(Ours):
    name = "write_file"
    tool_invoke_params_example = {"path": "/tmp/a", "content": "text"}


class TestWriteFileUnit(WriteFile, ToolsUnitTests):
    pass


class TestWriteFileIntegration(WriteFile, ToolsIntegrationTests):
    pass


class ListFiles(Ours):
    name = "list_files"
    tool_invoke_params_example = {"path": "/etc"}


class TestListFilesUnit(ListFiles, ToolsUnitTests):
    pass


class TestListFilesIntegration(ListFiles, ToolsIntegrationTests):
    pass


def test_a_command_says_its_errors_and_its_exit_code(tools):
    said = tools["run_command"].invoke({"command": "echo out; echo err >&2; exit 3"})
    assert said == "out\nerr\n\n[exit code 3]"


def test_a_command_that_takes_too_long(tools):
    said = tools["run_command"].invoke({"command": "echo begun; sleep 60", "timeout": 1})
    assert said == "begun\n\n[ended: it took more than 1 s]"


def test_much_output_is_shortened_and_says_how_to_get_it(tools):
    said = tools["run_command"].invoke({"command": "seq 100000"})
    assert len(said) < 1200
    assert said.startswith("1\n2\n")
    assert said.endswith("100000\n")
    assert "characters left out: write them to a file" in said


def test_a_file_in_pages(tools):
    content = "".join(f"line {n}\n" for n in range(5))
    path = "/tmp/deep/er/file"
    assert tools["write_file"].invoke({"path": path, "content": content}) == f"wrote {path}"
    said = tools["read_file"].invoke({"path": path, "offset": 1, "limit": 2})
    assert said == "line 1\nline 2\n\n[2 more lines, from offset 3]"
    assert "6 /tmp/deep" not in tools["list_files"].invoke({"path": "/tmp"})
    assert tools["list_files"].invoke({"path": "/tmp/deep/er"}).split() == ["35", path]


@pytest.mark.parametrize("name", ["read_file", "list_files"])
def test_an_error_is_told(tools, name):
    call = {"name": name, "args": {"path": "/missing"}, "id": "1", "type": "tool_call"}
    message = tools[name].invoke(call)
    assert message.status == "error"
    assert message.content.startswith("error: path '/missing' does not exist")
