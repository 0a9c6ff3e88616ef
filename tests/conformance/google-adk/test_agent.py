"""Agents of ADK whose model is a script work in a sandbox."""

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types

from tupper.integrations.google_adk import TupperCodeExecutor, TupperEnvironment


class Script(BaseLlm):
    """Says what it was given, part by part."""

    model: str = "script"
    parts: list[types.Part]

    async def generate_content_async(self, llm_request, stream=False):
        part = self.parts.pop(0)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def events_of(agent):
    async with InMemoryRunner(agent=agent, app_name="test") as runner:
        session = await runner.session_service.create_session(app_name="test", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        arguments = {"user_id": "user", "session_id": session.id, "new_message": message}
        return [event async for event in runner.run_async(**arguments)]


async def test_an_agent_with_tools():
    environment = TupperEnvironment()
    tools = EnvironmentToolset(environment=environment)
    names = {tool.name for tool in await tools.get_tools()}
    call = types.Part.from_function_call(
        name=next(name for name in names if "xec" in name), args={"command": "uname -s; exit 3"}
    )
    script = Script(parts=[call, types.Part(text="done")])
    try:
        events = await events_of(LlmAgent(name="agent", model=script, tools=[tools]))
    finally:
        await environment.close()
    answers = [answer.response for event in events for answer in event.get_function_responses()]
    assert len(answers) == 1
    assert "Linux" in str(answers[0])
    assert "3" in str(answers[0])
    assert events[-1].content.parts[0].text == "done"


async def test_an_agent_that_writes_code():
    executor = TupperCodeExecutor()
    code = types.Part(text="```python\nprint(6 * 7)\n```")
    script = Script(parts=[code, types.Part(text="it is 42")])
    try:
        agent = LlmAgent(name="agent", model=script, code_executor=executor)
        events = await events_of(agent)
    finally:
        executor.close()
    assert any("42" in str(event.content.parts) for event in events[:-1] if event.content)
    assert events[-1].content.parts[0].text == "it is 42"


def test_the_example(run_example):
    assert "It is 42." in run_example("with_google_adk.py")
