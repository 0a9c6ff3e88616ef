"""A CodeAgent whose model is a script runs its code in a sandbox."""

import pytest
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.utils import AgentError

from tupper import Sandbox
from tupper.integrations.smolagents import TupperExecutor


class Script(Model):
    """Says what it was given, answer by answer."""

    def __init__(self, *answers):
        super().__init__(model_id="script")
        self.answers = list(answers)
        self.asked = []

    def generate(self, messages, **kwargs):
        self.asked.append(str(messages))
        return ChatMessage(role=MessageRole.ASSISTANT, content=self.answers.pop(0))


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: what to double.
    """
    return number * 2


@pytest.fixture(scope="module")
def executor():
    made = TupperExecutor()
    yield made
    made.cleanup()


def code(text):
    return f"Thought: next.\n<code>\n{text}\n</code>"


def test_an_agent_keeps_variables_and_answers(executor):
    script = Script(
        code("import platform; x = double(21); print(platform.system(), x)"),
        code("raise ValueError('told')"),
        code("final_answer({'x': x, 'y': y})"),
    )
    agent = CodeAgent(tools=[double], model=script, executor=executor, max_steps=5)
    answer = agent.run("Double 21.", additional_args={"y": [1, 2]})
    assert answer == {"x": 42, "y": [1, 2]}
    assert "Linux 42" in script.asked[1]
    assert "ValueError: told" in script.asked[2]


def test_values_and_errors(executor):
    assert executor("1 + 1").output == "2"
    assert executor("print('said')").logs == "said\n"
    assert executor("x = 1").output is None
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("1 / 0")


def test_a_picture(executor):
    made = executor(
        "import base64\n"
        "class P:\n"
        "    def _repr_png_(self):\n"
        f"        return base64.b64decode('{PIXEL}')\n"
        "P()"
    )
    assert made.output.size == (1, 1)


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Er"
    "kJggg=="
)


def test_the_sandbox_ends_with_the_agent():
    agent = CodeAgent(tools=[], model=Script(), executor=TupperExecutor())
    sandbox_id = agent.python_executor.sandbox.sandbox_id
    agent.cleanup()
    assert not Sandbox.kill(sandbox_id)


def test_the_example(run_example):
    assert "It is 42." in run_example("with_smolagents.py")
