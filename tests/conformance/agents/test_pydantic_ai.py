"""Agents of Pydantic AI whose model is a script work in a sandbox."""

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, WorkspaceRef
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import WorkspaceTimeoutError, WorkspaceUnavailableError

from tupper import Sandbox
from tupper.integrations.pydantic_ai import TupperWorkspace, TupperWorkspaceBackend


def call_once(name):
    """A model that calls a tool and says what it said."""

    def answer(messages, info):
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(last.content)])
        return ModelResponse(parts=[ToolCallPart(name, {})])

    return FunctionModel(answer)


async def note(ctx: RunContext) -> str:
    await ctx.workspace.write_text("note", "kept")
    return (await ctx.workspace.run("uname -s", shell=True)).stdout


async def recall(ctx: RunContext) -> str:
    return await ctx.workspace.read_text("note")


async def test_a_run_goes_on_where_another_ended():
    workspace = TupperWorkspace(options={"timeout": 600})
    first = Agent(call_once("note"), tools=[note], capabilities=[workspace])
    made = await first.run("go")
    assert made.output == "Linux\n"
    ref = made.workspace.ref
    assert ref.provider == "tupper"
    second = Agent(call_once("recall"), tools=[recall], capabilities=[workspace])
    assert (await second.run("go", workspace=ref)).output == "kept"
    await workspace.destroy(ref)
    await workspace.destroy(ref)
    with pytest.raises(WorkspaceUnavailableError):
        await second.run("go", workspace=ref)


async def test_a_run_that_needs_no_workspace_makes_no_sandbox():
    agent = Agent(
        FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("hello")])),
        capabilities=[TupperWorkspace()],
    )
    assert (await agent.run("go")).output == "hello"
    assert not Sandbox.list().next_items()


async def test_what_is_not_ours_is_left_to_others():
    other = WorkspaceRef(provider="other", id="1")
    assert TupperWorkspace().get_workspace(None, ref=other) is None
    with pytest.raises(ValueError, match="other"):
        TupperWorkspaceBackend(ref=other)
    with pytest.raises(ValueError, match="other"):
        await TupperWorkspace().destroy(other)


async def test_a_time_limit_has_what_was_written():
    backend = TupperWorkspaceBackend(options={"timeout": 600})
    try:
        with pytest.raises(WorkspaceTimeoutError) as caught:
            await backend.run("echo so far; sleep 1000", shell=True, timeout=1)
        assert caught.value.stdout == "so far\n"
        for limit in (0, -1, float("inf"), float("nan"), "1"):
            with pytest.raises(ValueError):
                await backend.run(["true"], timeout=limit)
    finally:
        await TupperWorkspace().destroy(backend.ref)


def test_the_example(run_example):
    assert run_example("with_pydantic_ai.py") == "Python says 42.\n"
