"""Searching a sandbox with its own ``grep`` and ``find``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mcp.server.mcpserver.exceptions import ToolError

from tupper.mcp.commands import WORD_MAX, outcome_of
from tupper.mcp.results import Match, MatchList
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared.types import CommandResult

_TIMEOUT_S = 60
_OUTPUT_MAX = 32 * 1024 * 1024
_LINE_MAX = 500
_PLAIN = re.compile(r"(.+?):(\d+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for."""

    pattern: str | None
    glob: str | None
    path: str
    literal: bool = False
    ignore_case: bool = False


def render_search(search: Search) -> list[str]:
    """The command for GNU's programs. File names end with NUL: they may hold anything else.

    Source: grep(1) and find(1).
    """
    if search.pattern is None:
        name = "-iname" if search.ignore_case else "-name"
        # find takes what begins like an option for one, and has no word that ends options.
        path = f"./{search.path}" if search.path[0] in "-(!," else search.path
        return [
            *("find", path, "-name", ".git", "-prune", "-o"),
            *(name, search.glob or "*", "-print0"),
        ]
    return [
        *("grep", "-rnIZ", "--exclude-dir=.git"),
        "-F" if search.literal else "-E",
        *(["-i"] if search.ignore_case else []),
        *([f"--include={search.glob}"] if search.glob else []),
        *("-e", search.pattern, "--", search.path),
    ]


def render_plain_search(search: Search) -> list[str]:
    """The same with what BusyBox has; file names are then what is before ``:NUMBER:``."""
    path = f"./{search.path}" if search.path[0] in "-(!," else search.path
    return [
        *("find", path, "-name", ".git", "-prune", "-o", "-type", "f"),
        *("-name", search.glob or "*", "-exec", "grep", "-Hn"),
        "-F" if search.literal else "-E",
        *(["-i"] if search.ignore_case else []),
        *("-e", search.pattern or "", "{}", "+"),
    ]


async def search(place: AsyncSandbox, wanted: Search, start: int, limit: int) -> MatchList:
    """Run it, and show a part of what it found."""
    for word in (wanted.pattern, wanted.glob, wanted.path):
        if word and (len(word.encode()) > WORD_MAX or "\0" in word):
            raise ToolError(f"a pattern or path of {len(word)} characters cannot be searched for")
    result = await _run(place, render_search(wanted))
    is_plain = wanted.pattern is not None and "invalid option" in result.stderr
    if is_plain:
        result = await _run(place, render_plain_search(wanted))
    if result.exit_code and not result.stdout and result.stderr:  # 1 alone: nothing was found
        raise ToolError(result.stderr.strip()[:2000])
    parse = parse_plain_lines if is_plain else parse_lines
    found = parse_names(result.stdout) if wanted.pattern is None else parse(result.stdout)
    shown = found[start : start + limit]
    end = start + len(shown)
    notes: list[str] = []
    if end < len(found):
        notes.append(f"matches {start} to {end} of {len(found)}: start={end} shows more")
    if result.dropped_bytes:
        notes.append("there are more matches than can be kept: narrow `path`, `glob` or `pattern`")
    if result.stderr:
        notes.append(result.stderr.strip()[:500])
    return MatchList(matches=shown, next_start=end if end < len(found) else None, notes=notes)


async def _run(place: AsyncSandbox, argv: list[str]) -> CommandResult[str]:
    return await outcome_of(
        place.commands.run(argv, timeout=_TIMEOUT_S, max_output_bytes=_OUTPUT_MAX)
    )


def parse_lines(output: str) -> list[Match]:
    """``path NUL line:text`` a line; what is not like that, the mark of a gap, is left out."""
    found: list[Match] = []
    for row in output.split("\n"):
        path, separator, rest = row.partition("\0")
        number, colon, text = rest.partition(":")
        if separator and colon and number.isdigit():
            found.append(Match(path=path, line=int(number), text=text[:_LINE_MAX]))
    return found


def parse_plain_lines(output: str) -> list[Match]:
    """``path:line:text`` a line; lines of binary files are left out."""
    rows = (_PLAIN.fullmatch(row) for row in output.split("\n") if "\0" not in row)
    return [Match(path=m[1], line=int(m[2]), text=m[3][:_LINE_MAX]) for m in rows if m]


def parse_names(output: str) -> list[Match]:
    """Paths, each ended by NUL."""
    return [Match(path=path) for path in output.split("\0") if path]
