"""A SandboxAgent of the OpenAI Agents SDK works in a sandbox.

Needs ``pip install 'tupper[openai-agents]'``. The model is a script, so that this runs without a
key; pass the name of a model (``gpt-5``) to use that.
"""

import asyncio
import json
import sys

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.manifest import Manifest
from agents.testing import ScriptedModel, assistant_message, function_call

from tupper.integrations.openai_agents import TupperSandboxClient, TupperSandboxClientOptions

CALL = function_call("exec_command", json.dumps({"cmd": "wc -l < numbers.txt"}), call_id="1")
SCRIPT = [[CALL], [assistant_message("The file has 3 lines.")]]


async def main() -> None:
    model = sys.argv[1] if sys.argv[1:] else ScriptedModel(SCRIPT)
    agent = SandboxAgent(name="counter", model=model, capabilities=[Shell(), Filesystem()])
    place = SandboxRunConfig(
        client=TupperSandboxClient(),
        options=TupperSandboxClientOptions(template="base"),
        manifest=Manifest(entries={"numbers.txt": File(content=b"1\n2\n3\n")}),
    )
    config = RunConfig(sandbox=place, tracing_disabled=True)
    result = await Runner.run(agent, "How many lines has numbers.txt?", run_config=config)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
