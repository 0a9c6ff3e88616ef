"""The tool that runs code in a kernel, which keeps variables from call to call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Literal

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic import Field

from tupper.mcp.output import Stream, excerpt
from tupper.mcp.results import CodeOutcome
from tupper.mcp.server import Call, session_of
from tupper.mcp.sessions import CODE_TEMPLATE
from tupper.mcp.tools_commands import MAX_CHARS, Chars, Sandbox
from tupper.sdk._shared.code import Execution, Result

_IMAGES = {"png": "image/png", "jpeg": "image/jpeg"}
_TEXTS = ("text", "markdown", "html", "latex", "svg")


async def run_code(
    ctx: Call,
    *,
    code: Annotated[str, Field(min_length=1)],
    language: Literal["python", "javascript", "typescript"] = "python",
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300,
    max_chars: Chars = MAX_CHARS,
    sandbox: Sandbox = None,
) -> Annotated[CallToolResult, CodeOutcome]:
    """Run code in a kernel that keeps variables and imports between calls.

    Returns what it printed, the value of its last expression, and images of plots. Needs a sandbox
    of the template code-interpreter; this session's own is one if run_code is the first to need it.
    """
    session = session_of(ctx)
    place = await session.find(sandbox, template=CODE_TEMPLATE)
    execution = await session.use(place, place.run_code(code, language=language, timeout=timeout_s))
    return _render(place.sandbox_id, execution, max_chars)


def _render(sandbox_id: str, execution: Execution, max_chars: int) -> CallToolResult:
    notes: list[str] = []
    texts = {
        name: _cut(pieces, max_chars, name, notes)
        for name, pieces in (
            ("stdout", execution.logs.stdout),
            ("stderr", execution.logs.stderr),
        )
    }
    images = [image for result in execution.results for image in _images(result)]
    if images:
        notes.append(f"{len(images)} images are beside this text")
    outcome = CodeOutcome(
        sandbox=sandbox_id,
        stdout=texts["stdout"],
        stderr=texts["stderr"],
        results=[_texts(result, max_chars, notes) for result in execution.results],
        error=execution.error.traceback or str(execution.error) if execution.error else None,
        notes=notes,
    )
    said = TextContent(type="text", text=outcome.model_dump_json())
    content: list[ContentBlock] = [said, *images]
    return CallToolResult(content=content, structured_content=outcome.model_dump(mode="json"))


def _cut(pieces: Iterable[str], max_chars: int, name: str, notes: list[str]) -> str:
    stream = Stream()
    for piece in pieces:
        stream.add(piece)
    shown = excerpt(stream, max_chars)
    if shown.cut:
        notes.append(
            f"{shown.cut} of {stream.size} characters of {name} are not shown: print less, or write"
            " to a file and read_file it"
        )
    return shown.text


def _texts(result: Result, max_chars: int, notes: list[str]) -> dict[str, str]:
    found = {name: value for name in _TEXTS if (value := getattr(result, name, None))}
    if result.json is not None:
        found["json"] = json.dumps(result.json)
    return {name: _cut([str(value)], max_chars, name, notes) for name, value in found.items()}


def _images(result: Result) -> list[ImageContent]:
    return [
        ImageContent(type="image", data=value, mime_type=mime)
        for name, mime in _IMAGES.items()
        if (value := getattr(result, name, None))
    ]
