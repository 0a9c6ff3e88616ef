"""Evaluations of Inspect AI whose model is a script work in sandboxes."""

from inspect_ai import Task, eval  # noqa: A004 - its name
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python

from tupper import Sandbox
from tupper.integrations.inspect_ai import TupperConfig, TupperSandboxEnvironment

MOCK = "mockllm/model"


def evaluate(where, *outputs, samples=1):
    """The log of an evaluation in which a model says these things in every sample."""
    for output in outputs:
        output.usage = ModelUsage()  # otherwise they are counted, with what is to be downloaded
    model = get_model(MOCK, custom_outputs=[*outputs] * samples)
    files = {"in.txt": "from the sample"}
    task = Task(
        dataset=[Sample(input="go", target="yes", files=files) for _ in range(samples)],
        solver=[use_tools(bash(timeout=60), python(timeout=60)), generate()],
        scorer=includes(),
        sandbox=where,
    )
    (log,) = eval(task, model=model, display="none", max_samples=1)
    assert log.status == "success", log.error
    return log


def said(log):
    return [message.text for message in log.samples[0].messages if message.role == "tool"]


def test_tools_work_in_the_sandbox_of_the_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    log = evaluate(
        "tupper",
        ModelOutput.for_tool_call(MOCK, "bash", {"command": "cat in.txt; id -un; exit 3"}),
        ModelOutput.for_tool_call(MOCK, "python", {"code": "print(6 * 7)"}),
        ModelOutput.from_content(MOCK, "yes"),
        samples=2,
    )
    assert "from the sampleuser" in said(log)[0]
    assert said(log)[1].strip() == "42"
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert not Sandbox.list().next_items()


def test_a_configuration_goes_through_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    config = TupperConfig(template="base", options={"user": "root", "envs": {"A": "B"}})
    log = evaluate(
        ("tupper", config),
        ModelOutput.for_tool_call(MOCK, "bash", {"command": "id -un; echo $A"}),
        ModelOutput.from_content(MOCK, "yes"),
    )
    assert said(log)[0].split() == ["root", "B"]
    stored = log.eval.sandbox.config.model_dump()
    assert TupperSandboxEnvironment.config_deserialize(stored) == config


async def test_cleanup_from_the_command_line_ends_only_ours():
    made = await TupperSandboxEnvironment.sample_init("task", None, {})
    command = (await made["default"].connection(user="root")).command
    assert command == f"tupper shell --user root {made['default'].sandbox.sandbox_id}"
    with Sandbox.create(timeout=600) as other:
        await TupperSandboxEnvironment.cli_cleanup(None)
        assert [info.sandbox_id for info in Sandbox.list().next_items()] == [other.sandbox_id]


def test_the_example(run_example):
    assert run_example("with_inspect_ai.py") == "success 1.0\n['3\\n']\n"
