"""smolagents: a sandbox as what runs the code of a ``CodeAgent``.

``CodeAgent(..., executor=TupperExecutor())``. Variables stay from step to step.
The sandbox is of the template ``code-interpreter``; the agent's ``cleanup`` ends it.

Source: ``smolagents.remote_executors`` 1.26.
"""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Sequence
from typing import Any

from tupper.code_interpreter import Result, Sandbox
from tupper.integrations import _shell
from tupper.integrations._extra import missing

try:
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError
except ImportError as error:
    raise missing("smolagents", error) from error
FORMATS = ("json", "html", "latex", "markdown", "svg", "text")


class TupperExecutor(RemotePythonExecutor):
    """A kernel in a sandbox.

    Args:
        additional_imports: packages to install.
        logger: of the agent, or None for a quiet one.
        allow_pickle: take objects that only pickle can carry from the sandbox: it could then run
            code here.
        options: of ``Sandbox.create``.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> None:
        super().__init__([*additional_imports], logger or AgentLogger(), allow_pickle)
        self.sandbox = Sandbox.create(**{**_shell.OURS, **options})
        try:
            self.installed_packages = self.install_packages([*additional_imports])
        except BaseException:
            self.sandbox.kill()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run a step of the agent.

        Errors:
            AgentError: what the code raised, for the agent to read.
        """
        execution = self.sandbox.run_code(code, timeout=0)
        logs = "".join(execution.logs.stdout)
        if execution.error is None:
            main = [result for result in execution.results if result.is_main_result]
            output = _value(main[0]) if main else None
            return CodeOutput(output=output, logs=logs, is_final_answer=False)
        if execution.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(execution.error.value, self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        raise AgentError(f"{logs}\n{execution.error.traceback}", self.logger)

    def cleanup(self) -> None:
        """End the sandbox."""
        self.sandbox.kill()


def _value(result: Result) -> object:
    """An image if it is one, or the richest text of it."""
    for picture in (result.png, result.jpeg):
        if picture is not None:
            image = importlib.import_module("PIL.Image")
            return image.open(io.BytesIO(base64.b64decode(picture)))
    values = [getattr(result, name) for name in FORMATS]
    return next((value for value in values if value is not None), None)
