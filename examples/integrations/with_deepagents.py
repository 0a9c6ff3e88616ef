"""An agent of Deep Agents works in a sandbox: ``python examples/integrations/with_deepagents.py``.

Needs ``pip install 'tupper[deepagents]'``. The model is a script, so that this runs without a key;
pass the name of a model (``anthropic:claude-sonnet-4-5``) to use that.
"""

import sys

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from tupper import Sandbox
from tupper.integrations.deepagents import TupperSandbox


class Script(GenericFakeChatModel):
    """Calls a tool, and then says that it is done."""

    def bind_tools(self, tools, **kwargs):
        return self


CALL = {"name": "execute", "args": {"command": "python3 -c 'print(6 * 7)'"}, "id": "1"}
SCRIPT = [AIMessage(content="", tool_calls=[CALL]), AIMessage(content="It is 42.")]


def main() -> None:
    model = sys.argv[1] if sys.argv[1:] else Script(messages=iter(SCRIPT))
    with Sandbox.create(timeout=600) as sandbox:
        agent = create_deep_agent(model=model, backend=TupperSandbox(sandbox=sandbox))
        question = {"role": "user", "content": "What is 6 times 7? Let Python say it."}
        for message in agent.invoke({"messages": [question]})["messages"]:
            message.pretty_print()


if __name__ == "__main__":
    main()
