"""ADK's own environment for E2B, with ``tupper serve`` as E2B."""

import pytest
from e2b import AsyncSandbox
from google.adk.agents import LlmAgent
from google.adk.integrations.e2b import E2BEnvironment
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types


@pytest.fixture
async def environment(e2b_server):
    made = E2BEnvironment(env_vars={"WHO": "you"})
    await made.initialize()
    yield made
    await made.close()


async def test_commands(environment):
    done = await environment.execute("echo out $WHO; pwd; echo err >&2; exit 3")
    assert (done.exit_code, done.stderr, done.timed_out) == (3, "err\n", False)
    assert done.stdout == f"out you\n{environment.working_dir}\n"
    assert (await environment.execute("sleep 60", timeout=0.5)).timed_out


async def test_files(environment):
    await environment.write_file("deep/er/bytes", b"\x00\xff")
    assert await environment.read_file("deep/er/bytes") == b"\x00\xff"
    await environment.write_file("/tmp/text", "grüße")
    assert (await environment.execute("cat /tmp/text")).stdout == "grüße"
    with pytest.raises(FileNotFoundError):
        await environment.read_file("missing")


async def test_a_sandbox_that_has_ended_is_replaced(environment):
    await AsyncSandbox.kill(environment._sandbox.sandbox_id)
    assert (await environment.execute("echo new")).stdout == "new\n"


class Script(BaseLlm):
    """Says what it was given, part by part."""

    model: str = "script"
    parts: list[types.Part]

    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.Content(role="model", parts=[self.parts.pop(0)]))


async def test_an_agent_with_tools(environment):
    tools = EnvironmentToolset(environment=environment)
    names = [tool.name for tool in await tools.get_tools()]
    name = next(name for name in names if "xec" in name)
    call = types.Part.from_function_call(name=name, args={"command": "uname -s; exit 3"})
    script = Script(parts=[call, types.Part(text="done")])
    agent = LlmAgent(name="agent", model=script, tools=[tools])
    async with InMemoryRunner(agent=agent, app_name="test") as runner:
        session = await runner.session_service.create_session(app_name="test", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        given = {"user_id": "user", "session_id": session.id, "new_message": message}
        events = [event async for event in runner.run_async(**given)]
    answers = [answer.response for event in events for answer in event.get_function_responses()]
    assert len(answers) == 1
    assert "Linux" in str(answers[0])
    assert events[-1].content.parts[0].text == "done"
