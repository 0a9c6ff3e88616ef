"""Agents whose model is a script work in a sandbox: LangChain's, and those of Deep Agents."""

import pytest
from deepagents import create_deep_agent
from deepagents_code.integrations.sandbox_provider import SandboxNotFoundError
from deepagents_code.integrations.sandbox_registry import SandboxRegistry
from langchain.agents import create_agent
from langchain.agents.middleware import ShellToolMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from tupper import AsyncSandbox, Sandbox
from tupper.integrations.deepagents import AsyncTupperSandbox, TupperSandbox
from tupper.integrations.langchain import TupperExecutionPolicy, sandbox_tools


class Script(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


def script(*calls):
    """A model that makes these calls, each a name and arguments, and then says that it is done."""
    messages = [
        AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(calls)
    ]
    return Script(messages=iter([*messages, AIMessage(content="done")]))


def results(answer):
    assert answer["messages"][-1].content == "done"
    return [m.content for m in answer["messages"] if isinstance(m, ToolMessage)]


GO = {"messages": [{"role": "user", "content": "go"}]}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(timeout=1800) as made:
        yield made


def test_an_agent_with_tools(sandbox):
    model = script(
        ("write_file", {"path": "/tmp/x.py", "content": "print(6 * 7)"}),
        ("run_command", {"command": "python3 /tmp/x.py"}),
    )
    agent = create_agent(model, tools=sandbox_tools(sandbox))
    assert results(agent.invoke(GO)) == ["wrote /tmp/x.py", "42\n"]


def test_an_agent_with_a_persistent_shell(sandbox):
    model = script(
        ("shell", {"command": "cd /tmp; x=7"}), ("shell", {"command": "pwd; echo $x$y; uname -s"})
    )
    policy = TupperExecutionPolicy(sandbox_id=sandbox.sandbox_id)
    shell = ShellToolMiddleware(execution_policy=policy, env={"y": "8"})
    said = results(create_agent(model, middleware=[shell]).invoke(GO))
    assert said[1].split() == ["/tmp", "78", "Linux"]


def test_a_deep_agent(sandbox):
    model = script(
        ("write_file", {"file_path": "/tmp/y.txt", "content": "one\ntwo\n"}),
        ("edit_file", {"file_path": "/tmp/y.txt", "old_string": "two", "new_string": "three"}),
        ("execute", {"command": "cat /tmp/y.txt; exit 2"}),
    )
    agent = create_deep_agent(model=model, backend=TupperSandbox(sandbox=sandbox))
    said = results(agent.invoke(GO))
    assert "one\nthree" in said[2]
    assert "2" in said[2]


async def test_a_deep_agent_on_asyncio():
    async with await AsyncSandbox.create(timeout=600) as made:
        model = script(("execute", {"command": "uname -s"}), ("ls", {"path": "/etc/apt"}))
        agent = create_deep_agent(model=model, backend=AsyncTupperSandbox(sandbox=made))
        said = results(await agent.ainvoke(GO))
    assert "Linux" in said[0]
    assert "/etc/apt/apt.conf.d" in said[1]


def test_a_deep_agent_finds_what_was_too_much_for_it(sandbox):
    model = script(("execute", {"command": "seq 100000"}))
    agent = create_deep_agent(model=model, backend=TupperSandbox(sandbox=sandbox))
    (said,) = results(agent.invoke(GO))
    assert len(said) < 20_000
    assert "/large_tool_results/0" in said
    assert sandbox.files.read("/large_tool_results/0").startswith("1\n2\n")


def test_a_command_that_takes_too_long_and_a_file_that_is_not_there(sandbox):
    backend = TupperSandbox(sandbox=sandbox)
    late = backend.execute("echo begun; sleep 60", timeout=1)
    assert late.exit_code == 124
    assert late.output.startswith("begun\n")
    assert backend.delete("/tmp/missing").error == "Error: '/tmp/missing' not found"


def test_dcode_finds_the_provider():
    registry = SandboxRegistry.load()
    assert registry.is_available("tupper")
    provider = registry.create_provider("tupper")
    assert provider.metadata.name == "tupper"
    backend = provider.get_or_create(snapshot="base", timeout=600)
    try:
        again = provider.get_or_create(sandbox_id=backend.id)
        assert again.execute("uname -s").output == "Linux\n"
    finally:
        provider.delete(sandbox_id=backend.id)
    provider.delete(sandbox_id=backend.id)
    with pytest.raises(SandboxNotFoundError):
        provider.get_or_create(sandbox_id=backend.id)
    with pytest.raises(SandboxNotFoundError):
        provider.get_or_create(snapshot="no-such-template")


@pytest.mark.parametrize("name", ["with_langchain.py", "with_deepagents.py"])
def test_the_example(run_example, name):
    assert "It is 42." in run_example(name)
