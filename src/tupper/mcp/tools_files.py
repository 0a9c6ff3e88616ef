"""Tools for the files of a sandbox: in pages, exact to the byte, and never a surprise."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tupper.mcp import reading, searching
from tupper.mcp.results import (
    Entry,
    EntryList,
    FileContent,
    FileEdited,
    FileWritten,
    MatchList,
)
from tupper.mcp.server import Call, session_of
from tupper.mcp.tools_commands import Sandbox
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared.types import EntryInfo

EDIT_MAX = 16 * 1024 * 1024
_PAGE = 500

Path = Annotated[str, Field(min_length=1, description="Absolute, or relative to the user's home.")]


async def read_file(
    ctx: Call,
    *,
    path: Path,
    start: Annotated[
        int, Field(ge=0, description="text: the first line, from 0. base64: the first byte.")
    ] = 0,
    limit: Annotated[
        int | None, Field(ge=1, description="Most lines (2000), or bytes for base64 (65536).")
    ] = None,
    encoding: Literal["text", "base64"] = "text",
    sandbox: Sandbox = None,
) -> FileContent:
    """Read a file of the sandbox, in parts if it is long.

    `next_start` is where the next part begins. Bytes that are not text come with encoding="base64".
    """
    session = session_of(ctx)
    place = await session.find(sandbox)
    if encoding == "base64":
        work = reading.read_bytes(place, path, start, limit or reading.DEFAULT_BYTES)
    else:
        work = reading.read_lines(place, path, start, limit or reading.DEFAULT_LINES)
    return await session.use(place, work)


async def write_file(
    ctx: Call,
    *,
    path: Path,
    content: str,
    encoding: Annotated[
        Literal["text", "base64"], Field(description="base64: `content` is bytes in base64.")
    ] = "text",
    user: Annotated[str | None, Field(description="Who shall own it.")] = None,
    sandbox: Sandbox = None,
) -> FileWritten:
    """Write a file of the sandbox and the directories that lead to it. Replaces what is there."""
    data = _decode(content) if encoding == "base64" else content.encode()
    session = session_of(ctx)
    place = await session.find(sandbox)
    written = await session.use(place, place.files.write(path, data, user))
    return FileWritten(path=written.path, size_bytes=len(data))


async def edit_file(
    ctx: Call,
    *,
    path: Path,
    old: Annotated[str, Field(min_length=1, description="Exactly as in the file, blanks too.")],
    new: str,
    replace_all: Annotated[bool, Field(description="Every place, not just a unique one.")] = False,
    user: Annotated[str | None, Field(description="On whose behalf, such as root.")] = None,
    sandbox: Sandbox = None,
) -> FileEdited:
    """Replace a piece of a text file of the sandbox. `old` must be there exactly once."""
    session = session_of(ctx)
    place = await session.find(sandbox)
    return await session.use(place, _edit(place, path, old, new, user, every=replace_all))


async def list_files(
    ctx: Call,
    *,
    path: Path = ".",
    depth: Annotated[int, Field(ge=1, le=20, description="How many levels.")] = 1,
    start: Annotated[int, Field(ge=0, description="The first entry of this part.")] = 0,
    limit: Annotated[int, Field(ge=1, le=5000, description="Most entries.")] = _PAGE,
    sandbox: Sandbox = None,
) -> EntryList:
    """List a directory of the sandbox, in parts if it is long. `.` is the user's home."""
    session = session_of(ctx)
    place = await session.find(sandbox)
    found = await session.use(place, place.files.list(path, depth))
    shown = found[start : start + limit]
    end = start + len(shown)
    notes = [f"entries {start} to {end} of {len(found)}"] if len(shown) < len(found) else []
    return EntryList(
        path=path,
        entries=[_entry(info) for info in shown],
        total=len(found),
        next_start=end if end < len(found) else None,
        notes=notes,
    )


async def search_files(
    ctx: Call,
    *,
    pattern: Annotated[
        str | None, Field(description="In the content: an extended regular expression.")
    ] = None,
    glob: Annotated[
        str | None, Field(description="Only files with such names, such as *.py.")
    ] = None,
    path: Path = ".",
    literal: Annotated[bool, Field(description="`pattern` is plain text.")] = False,
    ignore_case: bool = False,
    start: Annotated[int, Field(ge=0, description="The first match of this part.")] = 0,
    limit: Annotated[int, Field(ge=1, le=2000, description="Most matches.")] = 200,
    sandbox: Sandbox = None,
) -> MatchList:
    """Find lines that match `pattern`, or without it files whose names match `glob`.

    Binary files and .git are left out. `.` is the user's home.
    """
    if pattern is None and glob is None:
        raise ToolError("give `pattern`, `glob` or both")
    wanted = searching.Search(pattern, glob, path, literal=literal, ignore_case=ignore_case)
    session = session_of(ctx)
    place = await session.find(sandbox)
    return await session.use(place, searching.search(place, wanted, start, limit))


def _decode(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ToolError(f"content is not base64: {error}") from error


async def _edit(
    place: AsyncSandbox, path: str, old: str, new: str, user: str | None, *, every: bool
) -> FileEdited:
    before = await place.files.get_info(path, user)
    if before.size > EDIT_MAX:
        raise ToolError(
            f"{path} has {before.size} bytes; edit_file takes {EDIT_MAX}: use run_command with sed"
        )
    raw = bytes(await place.files.read(path, "bytes", user))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is not UTF-8 text (byte {error.start}): use run_command with sed or python3"
        ) from error
    changed, count = replace(text, old, new, path, every=every)
    now = await place.files.get_info(path, user)
    if (now.size, now.modified_time) != (before.size, before.modified_time):
        raise ToolError(f"{path} was changed by something else meanwhile: read it again")
    data = changed.encode()
    await place.files.write(path, data, user)
    return FileEdited(path=path, replacements=count, size_bytes=len(data))


def replace(text: str, old: str, new: str, path: str, *, every: bool) -> tuple[str, int]:
    """The text with a piece replaced, and how often.

    Errors:
        ToolError: it is not there, or more than once without ``every``.
    """
    count = text.count(old)
    if count == 0:
        near = " (it is there with other blanks)" if _squeeze(old) in _squeeze(text) else ""
        raise ToolError(f"`old` was not found in {path}{near}: read_file shows it exactly")
    if count > 1 and not every:
        places = ", ".join(map(str, _lines_of(text, old)))
        raise ToolError(
            f"`old` is there {count} times in {path}, on lines {places}: give more of what is"
            " around it, or replace_all=true"
        )
    return text.replace(old, new), count


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _lines_of(text: str, old: str) -> list[int]:
    """The lines, from 1, on which the first ten begin."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < 10:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found


def _entry(info: EntryInfo) -> Entry:
    return Entry(
        path=info.path,
        type=info.type.value if info.type else "other",
        size_bytes=info.size,
        permissions=info.permissions,
        modified_at=info.modified_time.isoformat(),
        target=info.symlink_target,
    )
