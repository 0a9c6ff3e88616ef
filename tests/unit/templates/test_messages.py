"""What the code interpreter makes of a kernel's messages. The service is a guest's program."""

import importlib.util
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[3] / "templates/code-interpreter/files/opt/code-interpreter"


@pytest.fixture(scope="module")
def messages():
    spec = importlib.util.spec_from_file_location("messages", PLACE / "messages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_output_and_counts(messages):
    (line,) = messages.lines_from_message(
        {"msg_type": "stream", "content": {"name": "stderr", "text": "x"}}
    )
    assert (line["type"], line["text"]) == ("stderr", "x")
    assert isinstance(line["timestamp"], int)
    message = {"msg_type": "execute_input", "content": {"code": "1", "execution_count": 4}}
    assert messages.lines_from_message(message) == [
        {"type": "number_of_executions", "execution_count": 4}
    ]
    assert messages.lines_from_message({"msg_type": "status", "content": {}}) == []


def test_results(messages):
    data = {"text/plain": "'quoted'", "image/png": "aGk=", "application/json": {"a": 1}, "x/y": 2}
    (main,) = messages.lines_from_message({"msg_type": "execute_result", "content": {"data": data}})
    assert main == {
        "type": "result",
        "is_main_result": True,
        "text": "quoted",
        "png": "aGk=",
        "json": {"a": 1},
        "extra": {"x/y": 2},
    }
    (shown,) = messages.lines_from_message({"msg_type": "display_data", "content": {"data": {}}})
    assert shown == {"type": "result", "is_main_result": False}
    assert [messages.unquoted(t) for t in ("'", "'a\"", '"b"', "")] == ["'", "'a\"", "b", ""]


def test_errors_have_no_colours(messages):
    content = {"ename": "E", "evalue": "v", "traceback": ["\x1b[31mone\x1b[0m", "two"]}
    assert messages.lines_from_message({"msg_type": "error", "content": content}) == [
        {"type": "error", "name": "E", "value": "v", "traceback": "one\ntwo"}
    ]
