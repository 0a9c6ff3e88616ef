"""An agent of Pydantic AI has a sandbox as its workspace.

Needs ``pip install 'tupper[pydantic-ai]'``. The model is a script, so that this runs without a key;
pass the name of a model (``openai:gpt-5``) to use that.
"""

import asyncio
import sys

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from tupper.integrations.pydantic_ai import TupperWorkspace


def script(messages, info):
    """Calls the tool, and then says what it said."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(f"Python says {last.content.strip()}.")])
    code = {"code": "print(6 * 7)"}
    return ModelResponse(parts=[ToolCallPart("python", code)])


async def python(ctx: RunContext, code: str) -> str:
    """Run Python code."""
    await ctx.workspace.write_text("job.py", code)
    done = await ctx.workspace.run(["python3", "job.py"], timeout=60)
    return done.stdout + done.stderr


async def main() -> None:
    model = sys.argv[1] if sys.argv[1:] else FunctionModel(script)
    workspace = TupperWorkspace(options={"timeout": 600})
    agent = Agent(model, tools=[python], capabilities=[workspace])
    result = await agent.run("What is 6 times 7? Let Python say it.")
    print(result.output)
    await workspace.destroy(result.workspace.ref)


if __name__ == "__main__":
    asyncio.run(main())
