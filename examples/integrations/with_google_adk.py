"""An agent of Google ADK has a sandbox as the environment of its tools.

Needs ``pip install 'tupper[google-adk]'``. The model is a script, so that this runs without a key;
pass the name of a model (``gemini-2.5-flash``) to use that.
"""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types

from tupper.integrations.google_adk import TupperEnvironment


class Script(BaseLlm):
    """Says what it was given, part by part."""

    model: str = "script"
    parts: list[types.Part]

    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.Content(role="model", parts=[self.parts.pop(0)]))


CALL = types.Part.from_function_call(name="Execute", args={"command": "python3 -c 'print(6 * 7)'"})


async def main() -> None:
    environment = TupperEnvironment()
    model = sys.argv[1] if sys.argv[1:] else Script(parts=[CALL, types.Part(text="It is 42.")])
    tools = EnvironmentToolset(environment=environment)
    agent = LlmAgent(name="agent", model=model, tools=[tools])
    try:
        async with InMemoryRunner(agent=agent, app_name="example") as runner:
            await runner.run_debug("What is 6 times 7? Let Python say it.", verbose=True)
    finally:
        await environment.close()


if __name__ == "__main__":
    asyncio.run(main())
