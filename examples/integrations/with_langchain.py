"""An agent of LangChain has tools in a sandbox: ``python examples/integrations/with_langchain.py``.

Needs ``pip install 'tupper[langchain]'``. The model is a script, so that this runs without a key;
pass the name of a model (``openai:gpt-5``) to use that.
"""

import sys

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from tupper import Sandbox
from tupper.integrations.langchain import sandbox_tools


class Script(GenericFakeChatModel):
    """Calls a tool, and then says that it is done."""

    def bind_tools(self, tools, **kwargs):
        return self


CALL = {"name": "run_command", "args": {"command": "python3 -c 'print(6 * 7)'"}, "id": "1"}
SCRIPT = [AIMessage(content="", tool_calls=[CALL]), AIMessage(content="It is 42.")]


def main() -> None:
    model = sys.argv[1] if sys.argv[1:] else Script(messages=iter(SCRIPT))
    with Sandbox.create(timeout=600) as sandbox:
        agent = create_agent(model, tools=sandbox_tools(sandbox))
        question = {"role": "user", "content": "What is 6 times 7? Let Python say it."}
        for message in agent.invoke({"messages": [question]})["messages"]:
            message.pretty_print()


if __name__ == "__main__":
    main()
