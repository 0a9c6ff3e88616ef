"""The agent's messages, parsed from JSON into frozen types and rendered into JSON. No I/O.

The agent speaks envd's protocol (proto3 JSON: zero and empty fields may be absent, 64-bit integers
come as numbers or strings, bytes as base64, unknown fields are ignored). What comes from an agent
comes from a guest that may lie: every field is checked for its type and its range, and a wrong one
is :class:`~tupper.core.errors.GuestMisbehaved`. Text is always printable as UTF-8.

Our extras, ignored by other clients: ``offset`` of a data event (bytes of that stream before it),
the ``gap`` event (bytes of a stream that are no longer kept), ``signal`` and ``limit`` of an end.

Source: the protocol of envd 0.6.13, process.proto and filesystem.proto; proto3 JSON mapping.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tupper.core.errors import GuestMisbehaved
from tupper.protocol.connect import as_list, as_object, parse_json

_INT64_MAX = 2**63 - 1
_PID_MAX = 2**31 - 1
T = TypeVar("T")


class Stream(StrEnum):
    """The outputs of a command; one with a terminal has only ``PTY``."""

    STDOUT = "stdout"
    STDERR = "stderr"
    PTY = "pty"


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """The first event of a stream.

    Args:
        pid: inside the guest.
    """

    pid: int


@dataclass(frozen=True, slots=True)
class ProcessGap:
    """Output that a re-attached client asked for is no longer kept.

    Args:
        stream: of which output.
        size: bytes that are lost.
    """

    stream: Stream
    size: int


@dataclass(frozen=True, slots=True)
class ProcessData:
    """A piece of output.

    Args:
        stream: which output.
        data: the bytes.
        offset: bytes of this stream before ``data``; None from an agent that does not say.
    """

    stream: Stream
    data: bytes
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The last event of a command.

    Args:
        exit_code: 0 to 255; -1 when a signal ended it.
        exited: whether it ended by itself.
        status: such as ``exit status 3`` or ``signal: killed``.
        error: the same text when that is a failure, else empty.
        signal: the signal's number, 0 for none.
        limit: which limit ended it (such as ``time``, ``memory``, ``pids``), empty for none.
    """

    exit_code: int
    exited: bool
    status: str
    error: str = ""
    signal: int = 0
    limit: str = ""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Nothing happened for a while."""


@dataclass(frozen=True, slots=True)
class WatchStart:
    """The watch is armed."""


class EventType(StrEnum):
    """What happened to a file."""

    UNSPECIFIED = "unspecified"
    CREATE = "create"
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    CHMOD = "chmod"


class FileType(StrEnum):
    """What an entry is; links are described by their targets."""

    UNSPECIFIED = "unspecified"
    FILE = "file"
    DIRECTORY = "dir"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """A file or directory.

    Args:
        name: the last part of its path.
        type: of the target, for a link.
        path: absolute.
        size: bytes.
        mode: permission bits, such as 0o644.
        permissions: like ``-rw-r--r--``.
        owner: user name (or number) inside.
        group: likewise.
        modified_time: aware, UTC; the epoch if the agent does not say.
        symlink_target: where a link leads; None for what is no link.
        metadata: of the upload that made it.
    """

    name: str
    type: FileType
    path: str
    size: int
    mode: int
    permissions: str
    owner: str
    group: str
    modified_time: dt.datetime
    symlink_target: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class FilesystemEvent:
    """Something happened below a watched directory.

    Args:
        name: relative to that directory.
        type: what happened.
        entry: the file afterwards, if it was asked for and is still there.
    """

    name: str
    type: EventType
    entry: EntryInfo | None = None


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process that lives and was started through the agent.

    Args:
        pid: inside the guest.
        tag: as given by who started it; None if none was.
        cmd: the program.
        args: its arguments.
        envs: its own environment, as given.
        cwd: its directory, as given; None if none was.
    """

    pid: int
    tag: str | None
    cmd: str
    args: tuple[str, ...]
    envs: Mapping[str, str]
    cwd: str | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the sandbox uses. Sizes in bytes, ``cpu_used_pct`` over all cores."""

    timestamp: float
    cpu_count: int
    cpu_used_pct: float
    mem_total: int
    mem_used: int
    mem_cache: int
    disk_used: int
    disk_total: int


@dataclass(frozen=True, slots=True)
class Status:
    """What the agent says about itself (``GET /tupper/status``).

    Args:
        version: of the agent.
        protocol: of our own routes; only grows.
        envd_version: whose surface it speaks.
        sandbox_id: whose agent it is.
        started_at: unix seconds; another value means that the agent was started again.
        last_activity: unix seconds of the last request that counts as use; 0 if none yet.
        active_streams: requests under way that keep the sandbox from being idle.
        processes: living processes that were started through the agent.
        held: whether a snapshot is being taken.
        limits_hit: names of the limits that were met since the start.
    """

    version: str
    protocol: int
    envd_version: str
    sandbox_id: str
    started_at: float
    last_activity: float
    active_streams: int
    processes: int
    held: bool
    limits_hit: tuple[str, ...]


ProcessEvent = ProcessStart | ProcessData | ProcessGap | ProcessEnd | KeepAlive
WatchEvent = WatchStart | FilesystemEvent | KeepAlive


class Fields:
    """Typed, strict reading of one JSON object. Accepts lowerCamelCase and snake_case keys.

    Args:
        value: parsed JSON of any shape.
        what: names the object in errors.
    """

    def __init__(self, value: object, what: str) -> None:
        found = as_object(value)
        if found is None:
            raise GuestMisbehaved(f"{what}: not a JSON object")
        self._fields = found
        self._what = what

    def get(self, key: str) -> object:
        """The raw value; None when absent or null."""
        value = self._fields.get(key)
        return self._fields.get(_snake(key)) if value is None else value

    def has(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self.get(key) is not None

    def fail(self, key: str, expected: str) -> GuestMisbehaved:
        """The error for a field of the wrong type. Shows no value: it may be a secret or huge."""
        return GuestMisbehaved(f"{self._what}: {key} is not {expected}")

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or not is_printable_utf8(value):
            raise self.fail(key, "text")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string or None."""
        return self.text(key) if self.has(key) else None

    def integer(self, key: str, *, low: int = 0, high: int = _INT64_MAX, default: int = 0) -> int:
        """An integer within bounds, as a number or as decimal text."""
        value = self.get(key)
        if value is None:
            return default
        number = _integer(value)
        if number is None or not low <= number <= high:
            raise self.fail(key, f"an integer from {low} to {high}")
        return number

    def number(self, key: str, default: float = 0.0) -> float:
        """A finite number, as such or as an integer."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.fail(key, "a finite number")
        return number

    def flag(self, key: str) -> bool:
        """A boolean; absent means false."""
        value = self.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.fail(key, "a boolean")
        return value

    def items(self, key: str, parse: Callable[[object], T]) -> tuple[T, ...]:
        """An array, each item parsed; absent means empty."""
        value = self.get(key)
        if value is None:
            return ()
        found = as_list(value)
        if found is None:
            raise self.fail(key, "an array")
        return tuple(parse(item) for item in found)

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings."""

        def parse(item: object) -> str:
            if not isinstance(item, str) or not is_printable_utf8(item):
                raise self.fail(key, "an array of text")
            return item

        return self.items(key, parse)

    def mapping(self, key: str) -> dict[str, str]:
        """An object whose values are strings."""
        value = self.get(key)
        if value is None:
            return {}
        found = as_object(value)
        if found is None:
            raise self.fail(key, "an object of text")
        out: dict[str, str] = {}
        for name, text in found.items():
            if not isinstance(text, str) or not is_printable_utf8(name + text):
                raise self.fail(key, "an object of text")
            out[name] = text
        return out


def _snake(key: str) -> str:
    return re.sub("([A-Z])", lambda match: "_" + match[1].lower(), key)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        return int(value)
    return None


def is_printable_utf8(text: str) -> bool:
    """Whether the text can be encoded: JSON's escapes can make lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_bytes(value: object, what: str) -> bytes:
    """Standard base64 with padding, as proto3 JSON writes bytes."""
    if not isinstance(value, str):
        raise GuestMisbehaved(f"{what}: not base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise GuestMisbehaved(f"{what}: not base64") from None


def render_bytes(data: bytes) -> str:
    """Standard base64 with padding."""
    return base64.b64encode(data).decode()


def parse_time(text: str, what: str) -> dt.datetime:
    """RFC 3339 with any offset and up to nine digits of seconds; the result is UTC."""
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", text
    )
    if match is None:
        raise GuestMisbehaved(f"{what}: not an RFC 3339 time")
    fraction = (match[2] or ".0")[:7]
    zone = "+00:00" if match[3] in "Zz" else match[3]
    try:
        return dt.datetime.fromisoformat(match[1].upper() + fraction + zone).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise GuestMisbehaved(f"{what}: not a time that exists") from None


_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)

# proto3 JSON: enums by name, numbers accepted, unknown ones decode as unspecified.
_FILE_TYPES: Mapping[str | int, FileType] = {
    "FILE_TYPE_FILE": FileType.FILE,
    "FILE_TYPE_DIRECTORY": FileType.DIRECTORY,
    "FILE_TYPE_SYMLINK": FileType.SYMLINK,
    1: FileType.FILE,
    2: FileType.DIRECTORY,
    3: FileType.SYMLINK,
}
_EVENT_TYPES: Mapping[str | int, EventType] = {
    "EVENT_TYPE_CREATE": EventType.CREATE,
    "EVENT_TYPE_WRITE": EventType.WRITE,
    "EVENT_TYPE_REMOVE": EventType.REMOVE,
    "EVENT_TYPE_RENAME": EventType.RENAME,
    "EVENT_TYPE_CHMOD": EventType.CHMOD,
    1: EventType.CREATE,
    2: EventType.WRITE,
    3: EventType.REMOVE,
    4: EventType.RENAME,
    5: EventType.CHMOD,
}


def _enum(value: object, names: Mapping[str | int, T], default: T) -> T:
    return names.get(value, default) if isinstance(value, str | int) else default


def parse_entry(value: object) -> EntryInfo:
    """One ``EntryInfo``."""
    fields = Fields(value, "file entry")
    time = fields.optional_text("modifiedTime")
    kind = _enum(fields.get("type"), _FILE_TYPES, FileType.UNSPECIFIED)
    return EntryInfo(
        name=fields.text("name"),
        type=FileType.SYMLINK if fields.flag("isSymlink") else kind,
        path=fields.text("path"),
        size=fields.integer("size", low=-_INT64_MAX - 1),
        mode=fields.integer("mode", high=2**32 - 1),
        permissions=fields.text("permissions"),
        owner=fields.text("owner"),
        group=fields.text("group"),
        modified_time=_EPOCH if time is None else parse_time(time, "file entry: modifiedTime"),
        symlink_target=fields.optional_text("symlinkTarget"),
        metadata=fields.mapping("metadata"),
    )


def parse_entry_reply(value: object) -> EntryInfo:
    """The answer of Stat, MakeDir and Move."""
    return parse_entry(Fields(value, "answer").get("entry"))


def parse_entries_reply(value: object) -> tuple[EntryInfo, ...]:
    """The answer of ListDir."""
    return Fields(value, "directory listing").items("entries", parse_entry)


def parse_filesystem_event(value: object) -> FilesystemEvent:
    """One event of a watch."""
    fields = Fields(value, "filesystem event")
    return FilesystemEvent(
        name=fields.text("name"),
        type=_enum(fields.get("type"), _EVENT_TYPES, EventType.UNSPECIFIED),
        entry=parse_entry(fields.get("entry")) if fields.has("entry") else None,
    )


def parse_watcher_id(value: object) -> str:
    """The answer of CreateWatcher."""
    return Fields(value, "watcher").text("watcherId")


def parse_watcher_events(value: object) -> tuple[FilesystemEvent, ...]:
    """The answer of GetWatcherEvents."""
    return Fields(value, "watcher events").items("events", parse_filesystem_event)


def parse_watch_message(payload: bytes) -> WatchEvent:
    """One message of WatchDir."""
    fields = Fields(parse_json(payload, "watch event"), "watch event")
    if fields.has("filesystem"):
        return parse_filesystem_event(fields.get("filesystem"))
    return WatchStart() if fields.has("start") else KeepAlive()


def parse_process_message(payload: bytes) -> ProcessEvent:
    """One message of Start or Connect.

    An event of an unknown kind is a :class:`KeepAlive`: newer agents may have more kinds.
    """
    outer = Fields(parse_json(payload, "process event"), "process event")
    event = Fields(outer.get("event"), "process event")
    if event.has("data"):
        return _parse_data(Fields(event.get("data"), "data event"))
    if event.has("end"):
        return _parse_end(Fields(event.get("end"), "end event"))
    if event.has("start"):
        return _parse_start(Fields(event.get("start"), "start event"))
    if event.has("gap"):
        return _parse_gap(Fields(event.get("gap"), "gap event"))
    return KeepAlive()


def _parse_start(fields: Fields) -> ProcessStart:
    pid = fields.integer("pid", low=1, high=_PID_MAX)
    if pid == 0:
        raise fields.fail("pid", "a process id")
    return ProcessStart(pid)


def _parse_gap(fields: Fields) -> ProcessGap:
    name = fields.text("stream")
    if name not in list(Stream):
        raise fields.fail("stream", "the name of an output")
    return ProcessGap(Stream(name), fields.integer("bytes"))


def _parse_data(fields: Fields) -> ProcessData:
    present = [stream for stream in Stream if fields.has(stream)]
    if len(present) != 1:
        raise GuestMisbehaved(f"data event: {len(present)} streams instead of one")
    return ProcessData(
        stream=present[0],
        data=parse_bytes(fields.get(present[0]), "data event"),
        offset=fields.integer("offset") if fields.has("offset") else None,
    )


def _parse_end(fields: Fields) -> ProcessEnd:
    return ProcessEnd(
        exit_code=fields.integer("exitCode", low=-(2**31), high=2**31 - 1),
        exited=fields.flag("exited"),
        status=fields.text("status"),
        error=fields.text("error"),
        signal=fields.integer("signal", high=255),
        limit=fields.text("limit"),
    )


class ProcessEvents:
    """Holds a stream of process events to its grammar: start, then data, one end, nothing after.

    An honest agent never breaks it; a guest that does (two ends, data after the end) is refused
    before anybody acts on it.
    """

    def __init__(self) -> None:
        self._started = False
        self.end: ProcessEnd | None = None

    def accept(self, payload: bytes) -> ProcessEvent:
        """Parse the next message and check its place."""
        event = parse_process_message(payload)
        if isinstance(event, KeepAlive):
            return event
        if self.end is not None:
            raise GuestMisbehaved("process stream: an event after the end event")
        if isinstance(event, ProcessStart) == self._started:
            raise GuestMisbehaved(
                "process stream: started twice" if self._started else "process stream: no start"
            )
        self._started = True
        if isinstance(event, ProcessEnd):
            self.end = event
        return event


def parse_processes_reply(value: object) -> tuple[ProcessInfo, ...]:
    """The answer of List."""
    return Fields(value, "process list").items("processes", _parse_process)


def _parse_process(value: object) -> ProcessInfo:
    fields = Fields(value, "process")
    config = Fields(fields.get("config") or {}, "process config")
    return ProcessInfo(
        pid=fields.integer("pid", high=_PID_MAX),
        tag=fields.optional_text("tag"),
        cmd=config.text("cmd"),
        args=config.texts("args"),
        envs=config.mapping("envs"),
        cwd=config.optional_text("cwd"),
    )


def parse_metrics(value: object) -> Metrics:
    """The answer of ``GET /metrics``."""
    fields = Fields(value, "metrics")
    return Metrics(
        timestamp=fields.number("ts"),
        cpu_count=fields.integer("cpu_count", high=2**20),
        cpu_used_pct=fields.number("cpu_used_pct"),
        mem_total=fields.integer("mem_total"),
        mem_used=fields.integer("mem_used"),
        mem_cache=fields.integer("mem_cache"),
        disk_used=fields.integer("disk_used"),
        disk_total=fields.integer("disk_total"),
    )


def parse_status(value: object) -> Status:
    """The answer of ``GET /tupper/status``."""
    fields = Fields(value, "agent status")
    return Status(
        version=fields.text("version"),
        protocol=fields.integer("protocol", high=2**31 - 1),
        envd_version=fields.text("envdVersion"),
        sandbox_id=fields.text("sandboxId"),
        started_at=fields.integer("startedAt") / 1000,
        last_activity=fields.integer("lastActivity") / 1000,
        active_streams=fields.integer("activeStreams"),
        processes=fields.integer("processes"),
        held=fields.flag("held"),
        limits_hit=fields.texts("limitsHit"),
    )


# --- requests: what we send ---------------------------------------------------------------------


def render_selector(pid: int | None = None, tag: str | None = None) -> dict[str, object]:
    """Names a process by pid, or by the tag it was started with."""
    return {"tag": tag} if pid is None else {"pid": pid}


def render_start(
    cmd: str,
    args: Sequence[str],
    *,
    envs: Mapping[str, str] | None = None,
    cwd: str | None = None,
    tag: str | None = None,
    stdin: bool = False,
    pty: tuple[int, int] | None = None,
) -> dict[str, object]:
    """The request of Start. ``pty`` is (columns, rows)."""
    process: dict[str, object] = {"cmd": cmd, "args": list(args)}
    if envs:
        process["envs"] = dict(envs)
    if cwd is not None:
        process["cwd"] = cwd
    request: dict[str, object] = {"process": process, "stdin": stdin}
    if tag is not None:
        request["tag"] = tag
    if pty is not None:
        request["pty"] = render_size(*pty)
    return request


def render_size(cols: int, rows: int) -> dict[str, object]:
    """A terminal's size."""
    return {"size": {"cols": cols, "rows": rows}}


def render_attach(
    selector: Mapping[str, object], offsets: Mapping[Stream, int] | None = None
) -> dict[str, object]:
    """The request of Connect.

    Args:
        selector: which process.
        offsets: bytes that we already have of each stream; None for new output only.
    """
    request: dict[str, object] = {"process": dict(selector)}
    if offsets is not None:
        request["tupper"] = {str(stream): offset for stream, offset in offsets.items()}
    return request


def render_input(selector: Mapping[str, object], data: bytes, *, pty: bool) -> dict[str, object]:
    """The request of SendInput."""
    key = "pty" if pty else "stdin"
    return {"process": dict(selector), "input": {key: render_bytes(data)}}
