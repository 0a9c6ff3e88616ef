"""The lines that an agent logs, as E2B's log entries. No I/O.

A line is ``TIME EVENT key=value …``, written by the agent; what does not look so (a machine's last
words, or whatever a guest made of its agent's log) is a message without keys.

Source: E2B wire notes, 4.12; ``agent/internal/server/ring.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tupper.core.errors import InvalidArgument
from tupper.protocol.e2b import parse_time, render_time

Level = Literal["debug", "info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warn", "error")
MAX_LIMIT = 1000

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]{8,20}Z) (.*)")
_PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Args:
        at: unix seconds.
        line: as logged, without its time.
        level: judged by what it tells of.
        fields: its keys.
    """

    at: float
    line: str
    level: Level = "info"
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which entries.

    Args:
        cursor_s: from this time on, or up to it when backward; unix seconds, None for all.
        limit: the most.
        is_backward: the newest first.
        level: at least as grave.
        search: contained in the line, whatever the case.
    """

    cursor_s: float | None = None
    limit: int = MAX_LIMIT
    is_backward: bool = False
    level: Level = "debug"
    search: str = ""


def parse_query(query: Mapping[str, str], *, cursor: str = "cursor") -> LogQuery:
    """The parameters of a request.

    Args:
        query: of the URL.
        cursor: how the parameter with the time, in milliseconds, is called.

    Raises:
        InvalidArgument: a value that is none.
    """
    direction, level = query.get("direction", "forward"), query.get("level", "debug")
    if direction not in ("forward", "backward"):
        raise InvalidArgument(f"direction must be forward or backward, not {direction[:80]!r}")
    known: list[Level] = [name for name in LEVELS if name == level]
    if not known:
        raise InvalidArgument(f"level must be one of {', '.join(LEVELS)}, not {level[:80]!r}")
    start = query.get(cursor, "")
    return LogQuery(
        cursor_s=_number(cursor, start, 0, 10**15) / 1000 if start else None,
        limit=_number("limit", query.get("limit") or str(MAX_LIMIT), 0, MAX_LIMIT),
        is_backward=direction == "backward",
        level=known[0],
        search=query.get("search", ""),
    )


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 17 and least <= int(text) <= most):
        raise InvalidArgument(f"{name} must be a number from {least} to {most}, not {text[:80]!r}")
    return int(text)


def parse_log(text: str, started_s: float) -> list[Entry]:
    """The entries of a log, in its order.

    Args:
        text: of the log.
        started_s: the time of lines before the first that has one, in unix seconds.
    """
    entries: list[Entry] = []
    at = started_s
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        rest = line
        if match is not None:
            try:
                at, rest = parse_time(match[1]), match[2]
            except InvalidArgument:
                rest = line
        if rest.strip():
            entries.append(_entry(at, rest))
    return entries


def _entry(at: float, line: str) -> Entry:
    fields = {key: value.strip('"') for key, value in _PAIR.findall(line)}
    is_bad = "error" in fields or "problem" in fields or line.startswith(("ended:", "panic"))
    return Entry(at, line, "error" if is_bad else "info", fields)


def select(entries: Sequence[Entry], query: LogQuery) -> list[Entry]:
    """The entries that a query asks for, in its order."""
    least, text = LEVELS.index(query.level), query.search.casefold()
    chosen = [
        entry
        for entry in entries
        if LEVELS.index(entry.level) >= least and text in entry.line.casefold()
    ]
    if query.cursor_s is not None:
        at = query.cursor_s
        chosen = [e for e in chosen if (e.at <= at if query.is_backward else e.at >= at)]
    if query.is_backward:
        chosen.reverse()
    return chosen[: query.limit]


def render_entry(entry: Entry) -> dict[str, object]:
    """As the newer of E2B's log routes has it."""
    return {
        "timestamp": render_time(entry.at),
        "message": entry.line,
        "level": entry.level,
        "fields": dict(entry.fields),
    }


def render_line(entry: Entry) -> dict[str, object]:
    """As the older one has it."""
    return {"timestamp": render_time(entry.at), "line": entry.line}
