"""Reading what the code interpreter says."""

import json

import pytest

from tupper.code_interpreter import AsyncSandbox, Execution, ExecutionError, Result, Sandbox
from tupper.sdk._shared.code import parse_contexts, parse_line
from tupper.sdk._shared.errors import ProtocolException


def read(*lines):
    execution = Execution()
    for line in lines:
        parse_line(json.dumps(line).encode(), execution)
    return execution


def test_an_execution():
    made = read(
        {"type": "number_of_executions", "execution_count": 3},
        {"type": "stdout", "text": "a", "timestamp": 1},
        {"type": "stderr", "text": "b", "timestamp": 2},
        {"type": "result", "is_main_result": False, "png": "aGk=", "extra": {"x/y": 1}},
        {"type": "result", "is_main_result": True, "text": "5"},
        {"type": "error", "name": "E", "value": "v", "traceback": "t"},
        {"type": "something_new"},
    )
    assert (made.text, made.execution_count) == ("5", 3)
    assert (made.logs.stdout, made.logs.stderr) == (["a"], ["b"])
    assert list(made.results[0].formats()) == ["png", "x/y"]
    assert made.error == ExecutionError("E", "v", "t")
    assert json.loads(made.to_json())["results"][1] == {"text": "5"}
    assert str(Result(text="x")) == "Result(x)"


@pytest.mark.parametrize(
    "raw", [b"{", b'{"type":"stdout"}', b'{"type":"error"}', b'{"type":"stdout","text":1,"timestamp":"x"}']
)  # fmt: skip
def test_what_no_service_says(raw):
    with pytest.raises(ProtocolException):
        parse_line(raw, Execution())


def test_the_time_was_over():
    with pytest.raises(TimeoutError):
        parse_line(b'{"type":"timeout"}', Execution())


def test_names():
    assert Sandbox.default_template == AsyncSandbox.default_template == "code-interpreter"
    with pytest.raises(ProtocolException):
        parse_contexts([{"id": "x"}])
