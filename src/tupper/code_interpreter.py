"""The names of ``e2b_code_interpreter``: change the import line, and code for it runs here.

``from tupper.code_interpreter import Sandbox`` makes sandboxes of the template
``code-interpreter``; everything that ``tupper`` has is here too.
"""

from __future__ import annotations

import tupper
from tupper.sdk._async.sandbox import AsyncSandbox as _AsyncSandbox
from tupper.sdk._shared.code import (
    TEMPLATE,
    Context,
    Execution,
    ExecutionError,
    Logs,
    MIMEType,
    OutputMessage,
    Result,
    RunCodeLanguage,
)
from tupper.sdk._shared.types import OutputHandler
from tupper.sdk._sync.sandbox import Sandbox as _Sandbox


class Sandbox(_Sandbox):
    """A sandbox with kernels for Python, JavaScript and TypeScript."""

    default_template = TEMPLATE


class AsyncSandbox(_AsyncSandbox):
    """A sandbox with kernels for Python, JavaScript and TypeScript."""

    default_template = TEMPLATE


__all__ = [
    "AsyncSandbox",
    "Context",
    "Execution",
    "ExecutionError",
    "Logs",
    "MIMEType",
    "OutputHandler",
    "OutputMessage",
    "Result",
    "RunCodeLanguage",
    "Sandbox",
]


def __getattr__(name: str) -> object:
    """What ``tupper`` has. Source: PEP 562."""
    if name.startswith("_"):
        raise AttributeError(name)
    value: object = getattr(tupper, name)
    return value
