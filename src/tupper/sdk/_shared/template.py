"""What a build of a template is made of and what it says; E2B's names. No I/O.

Source: the public types of the ``e2b`` package 2.63.0.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, NotRequired, TypedDict, cast
from urllib.parse import quote

from tupper.protocol.connect import as_object
from tupper.sdk._shared.errors import ProtocolException

LogEntryLevel = Literal["debug", "info", "warn", "error"]
_LEVELS: dict[str, LogEntryLevel] = {
    "debug": "debug", "info": "info", "warn": "warn", "error": "error",
}  # fmt: skip
# Control sequences of terminals: CSI with parameters, OSC and the like to their terminator.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[@-Z\\-_]", re.DOTALL
)


class CopyItem(TypedDict):
    """Something to copy, for ``copy_items``."""

    src: str | Path | list[str | Path]
    dest: str | Path
    forceUpload: NotRequired[Literal[True] | None]
    user: NotRequired[str | None]
    mode: NotRequired[int | None]
    resolveSymlinks: NotRequired[bool | None]
    gzip: NotRequired[bool | None]


@dataclass
class BuildInfo:
    """A build that was asked for.

    Args:
        template_id, build_id: name it.
        name: as given.
        alias: the same.
        tags: that it gets.
    """

    template_id: str
    build_id: str
    name: str
    alias: str
    tags: list[str] = field(default_factory=list[str])


@dataclass
class LogEntry:
    """A line of a build's log, without control sequences of terminals."""

    timestamp: dt.datetime
    level: LogEntryLevel
    message: str

    def __post_init__(self) -> None:
        """Remove the control sequences."""
        self.message = _ESCAPES.sub("", self.message)

    def __str__(self) -> str:
        """As a line."""
        return f"[{self.timestamp.isoformat()}] [{self.level}] {self.message}"


@dataclass
class LogEntryStart(LogEntry):
    """The first of a build."""

    level: LogEntryLevel = field(default="debug", init=False)


@dataclass
class LogEntryEnd(LogEntry):
    """The last of a build."""

    level: LogEntryLevel = field(default="debug", init=False)


class TemplateBuildStatus(StrEnum):
    """States of a build."""

    BUILDING = "building"
    WAITING = "waiting"
    READY = "ready"
    ERROR = "error"


@dataclass
class BuildStatusReason:
    """Why a build failed.

    Args:
        message: for people.
        step: its number from 1, ``base`` or ``finalize``.
        log_entries: that belong to it.
    """

    message: str
    step: str | None = None
    log_entries: list[LogEntry] = field(default_factory=list[LogEntry])


@dataclass
class TemplateBuildStatusResponse:
    """How far a build is, and a page of its log."""

    build_id: str
    template_id: str
    status: TemplateBuildStatus
    log_entries: list[LogEntry]
    logs: list[str]
    reason: BuildStatusReason | None = None


@dataclass
class TemplateTagInfo:
    """Tags that were given to a build."""

    build_id: str
    tags: list[str]


@dataclass
class TemplateTag:
    """A tag of a template."""

    tag: str
    build_id: str
    created_at: dt.datetime


def template_path(name: str, tail: str = "", *, version: str = "") -> str:
    """The route of one template."""
    return f"{version}/templates/{quote(name, safe='')}{tail}"


def parse_status(value: object) -> TemplateBuildStatusResponse:
    """The answer about a build."""
    fields = _object(value)
    reason = as_object(fields.get("reason"))
    try:
        status = TemplateBuildStatus(_text(fields, "status"))
    except ValueError as error:
        raise ProtocolException(f"the server named no state of a build: {error}") from error
    return TemplateBuildStatusResponse(
        build_id=_text(fields, "buildID"),
        template_id=_text(fields, "templateID"),
        status=status,
        log_entries=_entries(fields),
        logs=[],
        reason=None if reason is None else _reason(reason),
    )


def _reason(fields: dict[str, object]) -> BuildStatusReason:
    step = fields.get("step")
    return BuildStatusReason(
        _text(fields, "message"), step if isinstance(step, str) else None, _entries(fields)
    )


def _entries(fields: dict[str, object]) -> list[LogEntry]:
    found: list[LogEntry] = []
    for item in _list(fields.get("logEntries")):
        entry = _object(item)
        level = _LEVELS.get(_text(entry, "level"), "info")
        found.append(LogEntry(_time(entry, "timestamp"), level, _text(entry, "message")))
    return found


def parse_tags(value: object) -> list[TemplateTag]:
    """The answer about a template's tags."""
    return [
        TemplateTag(_text(item, "tag"), _text(item, "buildID"), _time(item, "createdAt"))
        for item in map(_object, _list(value))
    ]


def parse_tag_info(value: object) -> TemplateTagInfo:
    """The answer to tags that were given."""
    fields = _object(value)
    return TemplateTagInfo(
        _text(fields, "buildID"), [str(tag) for tag in _list(fields.get("tags"))]
    )


def parse_build(value: object, name: str) -> BuildInfo:
    """The answer to a build that was asked for."""
    fields = _object(value)
    tags = [str(tag) for tag in _list(fields.get("tags"))]
    return BuildInfo(_text(fields, "templateID"), _text(fields, "buildID"), name, name, tags)


def _object(value: object) -> dict[str, object]:
    found = as_object(value)
    if found is None:
        raise ProtocolException("the server's answer is no JSON object")
    return found


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ProtocolException(f"the server's answer has no {name}")
    return value


def _time(fields: dict[str, object], name: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(_text(fields, name))
    except ValueError as error:
        raise ProtocolException(f"the server's answer has no time in {name}") from error
