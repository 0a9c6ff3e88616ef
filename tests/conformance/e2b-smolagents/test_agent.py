"""A CodeAgent with smolagents' own executor for E2B, with ``tupper serve`` as E2B."""

import pytest
from e2b_code_interpreter import Sandbox
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor
from smolagents.utils import AgentError

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


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


def code(text):
    return f"Thought: next.\n<code>\n{text}\n</code>"


@pytest.fixture(scope="module")
def executor(e2b_server):
    made = E2BExecutor([], AgentLogger(level=LogLevel.OFF))
    yield made
    made.cleanup()


def test_an_agent_by_the_name_of_its_executor(e2b_server):
    script = Script(
        code("import platform; x = double(21); print(platform.system(), x)"),
        code("raise ValueError('told')"),
        code("final_answer({'x': x, 'y': y})"),
    )
    with CodeAgent(tools=[double], model=script, executor_type="e2b", max_steps=5) as agent:
        sandbox_id = agent.python_executor.sandbox.sandbox_id
        answer = agent.run("Double 21.", additional_args={"y": [1, 2]})
    assert answer == {"x": 42, "y": [1, 2]}
    assert "Linux 42" in script.asked[1]
    assert "ValueError: told" in script.asked[2]
    assert not Sandbox.kill(sandbox_id)


def test_values_logs_and_errors(executor):
    assert executor("1 + 1").output == "2"
    assert executor("print('said')").logs == "said\n"
    assert executor("x = 1").output is None
    assert executor("x + 1").output == "2"
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


def test_shell_lines(executor):
    assert "here" in executor("!echo here").logs
