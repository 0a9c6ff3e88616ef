"""What running code says: results, logs, errors, contexts; the names of E2B's code interpreter.

Source: the public types of ``e2b-code-interpreter`` 2.11; the lines are those of the service in
``templates/code-interpreter``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from tupper.protocol.connect import as_object
from tupper.sdk._shared.errors import ProtocolException

PORT = "49999"
TEMPLATE = "code-interpreter"
DEFAULT_TIMEOUT_S = 300.0
RunCodeLanguage = str  # python, javascript, typescript, and their short forms
_TEXTS = ("text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "javascript")
_OBJECTS = ("json", "data", "chart")


class MIMEType(str):
    """The type of a form of a result."""

    __slots__ = ()


@dataclass
class OutputMessage:
    """A piece of output.

    Args:
        line: the text.
        timestamp: unix nanoseconds.
        error: whether it is standard error.
    """

    line: str
    timestamp: int
    error: bool = False

    def __str__(self) -> str:
        """The text."""
        return self.line


@dataclass
class ExecutionError:
    """What the code raised."""

    name: str
    value: str
    traceback: str

    def to_json(self) -> str:
        """As JSON."""
        found = {"name": self.name, "value": self.value, "traceback": self.traceback}
        return json.dumps(found)


@dataclass(repr=False)
class Result:
    """A value in all the forms that the kernel gave it; images are in base64.

    Args:
        is_main_result: whether it is what the last line stands for; else it was displayed.
        extra: forms that have no name here.
    """

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: dict[str, object] | None = None
    javascript: str | None = None
    data: dict[str, object] | None = None
    chart: dict[str, object] | None = None
    is_main_result: bool = False
    extra: dict[str, object] | None = None

    def __getitem__(self, name: str) -> object:
        """One form by its name."""
        extra = self.extra or {}
        return extra[name] if name in extra else getattr(self, name)

    def formats(self) -> Iterable[str]:
        """The names of the forms that there are."""
        names = (*_TEXTS[:8], "json", "javascript", "data", "chart")
        return [name for name in names if self[name]] + list(self.extra or ())

    def __str__(self) -> str:
        """For people."""
        return repr(self)

    def __repr__(self) -> str:
        """For people."""
        if self.text:
            return f"Result({self.text})"
        return f"Result(Formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str | None:
        return self.html

    def _repr_markdown_(self) -> str | None:
        return self.markdown

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _repr_png_(self) -> str | None:
        return self.png

    def _repr_jpeg_(self) -> str | None:
        return self.jpeg

    def _repr_latex_(self) -> str | None:
        return self.latex


@dataclass
class Logs:
    """What the code printed, piece by piece."""

    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps({"stdout": self.stdout, "stderr": self.stderr})


@dataclass(repr=False)
class Execution:
    """All that came of running code.

    Args:
        results: the value of the last line, and what was displayed.
        logs: what it printed.
        error: what it raised; None if nothing.
        execution_count: the how-manieth it was in its context.
    """

    results: list[Result] = field(default_factory=list[Result])
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None

    @property
    def text(self) -> str | None:
        """The value of the last line as text; None if it has none."""
        for result in self.results:
            if result.is_main_result:
                return result.text
        return None

    def __repr__(self) -> str:
        """For people."""
        return f"Execution(Results: {self.results}, Logs: {self.logs}, Error: {self.error})"

    def to_json(self) -> str:
        """As JSON."""
        results = [{name: r[name] for name in (*r.formats(), "text")} for r in self.results]
        return json.dumps(
            {
                "results": results,
                "logs": self.logs.to_json(),
                "error": self.error.to_json() if self.error else None,
            }
        )


@dataclass
class Context:
    """A kernel that keeps what was run in it.

    Args:
        id: names it.
        language: of the code.
        cwd: where it began.
    """

    id: str
    language: str
    cwd: str

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Context:
        """Read one."""
        return cls(data["id"], data["language"], data["cwd"])


Said = OutputMessage | Result | ExecutionError | None


def parse_line(raw: bytes, execution: Execution) -> Said:
    """Read a line, add what it says to an execution, and return it.

    Errors:
        ProtocolException: the service said something else.
        TimeoutError: the time of the execution was over.
    """
    try:
        line = as_object(json.loads(raw)) or {}
        match line.get("type"):
            case "stdout" | "stderr" as kind:
                return _output(line, execution, is_error=kind == "stderr")
            case "result":
                result = _result(line)
                execution.results.append(result)
                return result
            case "error":
                execution.error = ExecutionError(
                    str(line["name"]), str(line["value"]), str(line["traceback"])
                )
                return execution.error
            case "number_of_executions":
                execution.execution_count = int(str(line["execution_count"]))
            case "timeout":
                raise TimeoutError
            case _:
                pass
    except (ValueError, KeyError, RecursionError) as error:
        raise ProtocolException(f"the code interpreter said: {raw[:200]!r}") from error
    return None


def _output(line: dict[str, object], execution: Execution, *, is_error: bool) -> OutputMessage:
    text = str(line["text"])
    (execution.logs.stderr if is_error else execution.logs.stdout).append(text)
    return OutputMessage(text, int(str(line["timestamp"])), is_error)


def _result(line: dict[str, object]) -> Result:
    result = Result(is_main_result=line.get("is_main_result") is True)
    for name in _TEXTS:
        if isinstance(value := line.get(name), str):
            setattr(result, name, value)
    for name in (*_OBJECTS, "extra"):
        setattr(result, name, as_object(line.get(name)))
    return result


def parse_context(value: object) -> Context:
    """A context as the service shows it."""
    fields = as_object(value) or {}
    try:
        return Context(str(fields["id"]), str(fields["language"]), str(fields["cwd"]))
    except KeyError as error:
        raise ProtocolException("the code interpreter showed no context") from error


def parse_contexts(value: object) -> list[Context]:
    """All contexts."""
    return [parse_context(item) for item in cast("list[object]", value or [])]
