"""A CodeAgent of smolagents runs its code in a sandbox.

Needs ``pip install 'tupper[smolagents]'``. The model is a script, so that this runs without a key;
pass the name of a model (``openai/gpt-5``, by LiteLLM) to use that.
"""

import sys

from smolagents import CodeAgent, LiteLLMModel, Model
from smolagents.models import ChatMessage, MessageRole

from tupper.integrations.smolagents import TupperExecutor


class Script(Model):
    """Says what it was given, answer by answer."""

    answers = (
        "<code>\nx = 6 * 7\nprint(x)\n</code>",
        "<code>\nfinal_answer(f'It is {x}.')\n</code>",
    )

    def __init__(self):
        super().__init__(model_id="script")
        self.left = iter(self.answers)

    def generate(self, messages, **kwargs):
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.left))


def main() -> None:
    model = LiteLLMModel(model_id=sys.argv[1]) if sys.argv[1:] else Script()
    agent = CodeAgent(tools=[], model=model, executor=TupperExecutor())
    try:
        print(agent.run("What is 6 times 7? Let Python say it."))
    finally:
        agent.cleanup()


if __name__ == "__main__":
    main()
