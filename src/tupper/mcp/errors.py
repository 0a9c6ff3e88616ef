"""From an exception of the SDK to words that a model can act on.

Only what is raised as ``ToolError`` reaches the model with its text; everything else is a fault of
ours, is logged, and reaches it without.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from tupper.core.errors import TupperError

P = ParamSpec("P")
R = TypeVar("R")


def explain(error: TupperError) -> str:
    """What went wrong, and what can be done about it."""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return f"{error.message or type(error).__name__} [{error.code}]{hint}"


def told(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """A tool whose errors of the SDK reach the model."""

    @functools.wraps(tool)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await tool(*args, **kwargs)
        except TupperError as error:
            raise ToolError(explain(error)) from error

    return wrapper


def explain_arguments(tool: str, error: ValidationError) -> str:
    """Which arguments are wrong and why, a line each."""
    lines: list[str] = []
    for item in error.errors(include_url=False):
        said = f"{item['msg']}; got {item['input']!r:.200}"
        place = ".".join(str(part) for part in item["loc"])
        lines.append(f"  {place}: {'is missing' if item['type'] == 'missing' else said}")
    return f"{tool} was called with arguments that do not fit:\n" + "\n".join(lines)
