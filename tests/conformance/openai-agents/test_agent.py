"""An agent of the OpenAI Agents SDK whose model is a script works in a sandbox."""

import json

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.manifest import Manifest
from agents.testing import ScriptedModel, assistant_message, function_call

from tupper.integrations.openai_agents import (
    TupperSandboxClient,
    TupperSandboxClientOptions,
)


async def test_an_agent_runs_a_command_and_answers():
    command = "wc -l < numbers.txt; uname -s"
    model = ScriptedModel(
        [
            [function_call("exec_command", json.dumps({"cmd": command}), call_id="call-1")],
            [assistant_message("three lines")],
        ]
    )
    agent = SandboxAgent(name="counter", model=model, capabilities=[Shell(), Filesystem()])
    manifest = Manifest(entries={"numbers.txt": File(content=b"1\n2\n3\n")})
    config = RunConfig(
        tracing_disabled=True,
        sandbox=SandboxRunConfig(
            client=TupperSandboxClient(), options=TupperSandboxClientOptions(), manifest=manifest
        ),
    )
    result = await Runner.run(agent, "How many lines?", run_config=config)
    model.assert_complete()
    assert result.final_output == "three lines"
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert len(outputs) == 1
    assert "3\nLinux" in outputs[0]


def test_the_example(run_example):
    assert "The file has 3 lines." in run_example("with_openai_agents.py")
