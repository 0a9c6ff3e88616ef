"""Messages of Jupyter kernels as the lines that E2B's code interpreter clients read. No I/O.

Source: the Jupyter messaging protocol 5.4; ``parse_output`` of ``e2b-code-interpreter`` 2.11.
"""

from __future__ import annotations

import re
import time
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# MIME type → field of a result, in the order in which results show them.
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def lines_from_message(message: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client is told of one message on the kernel's output channel."""
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            kind = "stderr" if content["name"] == "stderr" else "stdout"
            return [{"type": kind, "text": content["text"], "timestamp": time.time_ns()}]
        case "execute_result":
            return [result(content["data"], is_main=True)]
        case "display_data" | "update_display_data":
            return [result(content["data"], is_main=False)]
        case "error":
            return [error(content["ename"], content["evalue"], content["traceback"])]
        case "execute_input":
            count = content["execution_count"]
            return [{"type": "number_of_executions", "execution_count": count}]
        case _:
            return []


def result(data: dict[str, Any], *, is_main: bool) -> dict[str, Any]:
    """A value in all the forms that the kernel gave it."""
    line: dict[str, Any] = {"type": "result", "is_main_result": is_main}
    for mime, name in FIELDS.items():
        if mime in data:
            line[name] = data[mime]
    if isinstance(text := line.get("text"), str):
        line["text"] = unquoted(text)
    extra = {mime: value for mime, value in data.items() if mime not in FIELDS}
    if extra:
        line["extra"] = extra
    return line


def unquoted(text: str) -> str:
    """The text of a string that a kernel shows as source code, with quotes around it."""
    if len(text) > 1 and text[0] in "'\"" and text[0] == text[-1]:
        return text[1:-1]
    return text


def error(name: str, value: str, traceback: list[str] | str) -> dict[str, Any]:
    """What went wrong, without colours: it is read by programs."""
    text = traceback if isinstance(traceback, str) else "\n".join(traceback)
    plain = _COLOURS.sub("", text)
    return {"type": "error", "name": name, "value": value, "traceback": plain}
