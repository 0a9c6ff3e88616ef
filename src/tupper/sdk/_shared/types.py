"""The values that the SDK takes and gives, in E2B's shapes; our fields come after theirs.

Source: the public types of the ``e2b`` package 2.63.0.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike
from typing import (
    IO,
    Generic,
    Literal,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

OutputT = TypeVar("OutputT")
T = TypeVar("T")

ALL_TRAFFIC = "0.0.0.0/0"

Username = str
Stdout = str
Stderr = str
PtyOutput = bytes
OutputHandler = Callable[[T], None] | Callable[[T], Awaitable[None]]
ProxyTypes = str
HttpVersion = Literal["1.1", "2"]
SandboxListOrder = Literal["asc", "desc"]
SandboxOnResume = Literal["restore", "reboot"]
SnapshotMode = Literal["full", "filesystem"]
WriteData = str | bytes | bytearray | memoryview | IO[bytes] | IO[str] | Iterable[bytes]

AsyncWriteData = (
    str
    | bytes
    | bytearray
    | memoryview
    | IO[bytes]
    | IO[str]
    | Iterable[bytes]
    | AsyncIterable[bytes]
)


@runtime_checkable
class Readable(Protocol):
    """A file object, binary or text."""

    def read(self, size: int = -1, /) -> bytes | str:
        """At most ``size`` bytes or characters; empty at the end."""
        ...


class ApiParams(TypedDict, total=False):
    """How to reach the server; every call that talks to it takes these.

    ``api_url`` is ``unix:/path``, ``http://…`` or ``https://…``; without one the local background
    process is used, and started when it does not run. ``request_timeout`` is in seconds.
    ``e2b:`` is E2B's own cloud, to which ``domain`` and ``sandbox_url`` belong. ``debug``,
    ``validate_api_key`` and ``http_version`` exist so that code for E2B runs unchanged; they mean
    nothing here.
    """

    request_timeout: float | None
    retries: int | None
    headers: dict[str, str] | None
    api_headers: dict[str, str] | None
    api_key: str | None
    validate_api_key: bool | None
    domain: str | None
    api_url: str | None
    debug: bool | None
    proxy: ProxyTypes | None
    sandbox_url: str | None
    http_version: HttpVersion | None


class SandboxState(str, Enum):  # noqa: UP042 - prints as E2B's does
    """Whether a sandbox runs."""

    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class FileType(Enum):
    """What an entry of a directory is."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"


class FilesystemEventType(Enum):
    """What happened to a file."""

    CHMOD = "chmod"
    CREATE = "create"
    REMOVE = "remove"
    RENAME = "rename"
    WRITE = "write"


@dataclass
class CommandResult(Generic[OutputT]):
    """How a command ended and what it wrote.

    Args:
        stderr: all of its standard error.
        stdout: all of its standard output.
        exit_code: 0 to 255; 128 + signal when a signal ended it.
        error: what went wrong, such as ``signal: killed``; None if nothing did.
        signal: the number of the signal that ended it; 0 for none.
        limit: which limit ended it (``memory``, ``pids``, ``disk``, ``time``); empty for none.
        dropped_bytes: bytes of output that were dropped from the middle because there was more
            than ``max_output_bytes``.
    """

    stderr: OutputT
    stdout: OutputT
    exit_code: int
    error: str | None
    signal: int = 0
    limit: str = ""
    dropped_bytes: int = 0


@dataclass
class PtySize:
    """The size of a terminal, in characters."""

    rows: int
    cols: int


@dataclass
class ProcessInfo:
    """A command or a terminal that runs.

    Args:
        pid: inside the sandbox.
        tag: as given at its start.
        cmd: the program; ``/bin/bash`` for commands given as text.
        args: its arguments.
        envs: its own environment, as given.
        cwd: its directory, as given.
    """

    pid: int
    tag: str | None
    cmd: str
    args: list[str]
    envs: dict[str, str]
    cwd: str | None


@dataclass
class WriteInfo:
    """A file that was written.

    Args:
        name: the last part of its path.
        type: file or directory.
        path: absolute.
        metadata: as given with the upload.
    """

    name: str
    type: FileType | None
    path: str
    metadata: dict[str, str] | None = field(default=None, kw_only=True)


@dataclass
class EntryInfo(WriteInfo):
    """A file or directory.

    Args:
        size: bytes.
        mode: permission bits, such as ``0o644``.
        permissions: like ``-rw-r--r--``.
        owner: user name inside the sandbox.
        group: group name inside the sandbox.
        modified_time: aware, UTC.
        symlink_target: where a link leads; None for what is no link.
    """

    size: int
    mode: int
    permissions: str
    owner: str
    group: str
    modified_time: dt.datetime
    symlink_target: str | None = None


class WriteEntry(TypedDict):
    """One file of ``write_files``."""

    path: str
    data: WriteData


class AsyncWriteEntry(TypedDict):
    """One file of the async ``write_files``."""

    path: str
    data: AsyncWriteData


@dataclass
class FilesystemEvent:
    """Something happened below a watched directory.

    Args:
        name: relative to that directory.
        type: what happened.
        entry: the file afterwards, if asked for and still there.
    """

    name: str
    type: FilesystemEventType
    entry: EntryInfo | None = None


class SandboxInfoLifecycle(TypedDict):
    """What happens when a sandbox's time is over."""

    on_timeout: Literal["pause", "kill"]
    auto_resume: bool


class SandboxLifecycle(TypedDict):
    """What shall happen when a sandbox's time is over.

    ``on_timeout`` is ``kill``, ``pause`` or ``{"action": "pause", "mode": "full"|"filesystem"}``;
    with ``auto_resume`` a request to a port of the paused sandbox resumes it.
    """

    on_timeout: Literal["pause", "kill"] | dict[str, object]
    auto_resume: NotRequired[bool]


@dataclass(frozen=True)
class SandboxNetworkSelectorContext:
    """What a function for ``allow_out`` or ``deny_out`` gets to choose from.

    Args:
        all_traffic: the range of all addresses.
        rules: as given beside it.
    """

    all_traffic: str
    rules: Mapping[str, object] = field(default_factory=dict[str, object])


SandboxNetworkSelector = list[str] | Callable[[SandboxNetworkSelectorContext], list[str]]


class SandboxNetworkUpdate(TypedDict, total=False):
    """What a running sandbox may reach from now on; what is left out is not restricted."""

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    allow_internet_access: bool


class SandboxNetworkOpts(TypedDict, total=False):
    """Which addresses a sandbox may reach, and how its own ports are reached.

    ``allow_out`` and ``deny_out`` are addresses or ranges (CIDR); allow wins. Without
    ``allow_public_traffic`` a request to a port needs the sandbox's traffic token.
    ``mask_request_host`` is what services inside see as ``Host``; ``${PORT}`` is the port.
    ``https_ports`` speak TLS inside.
    """

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    allow_public_traffic: bool
    mask_request_host: str
    https_ports: list[int]


@dataclass
class SandboxQuery:
    """Which sandboxes ``list`` shows.

    Args:
        metadata: all of these pairs must be there.
        state: any of these.
        started_after: at or after this time.
        template: made from this template.
    """

    metadata: dict[str, str] | None = None
    state: list[SandboxState] | None = None
    started_after: dt.datetime | None = None
    template: str | None = None


@dataclass
class SandboxInfo:
    """What is known about a sandbox.

    Args:
        sandbox_id: ``i`` and 20 letters or digits.
        sandbox_domain: under which its ports are reachable, if there is one.
        template_id: what it was made from.
        name: its name, or its template's alias.
        metadata: as given at its creation.
        started_at: aware.
        end_at: when its time is over; far in the future for never.
        state: running, paused or ended.
        cpu_count: cores, rounded up.
        memory_mb: MiB.
        envd_version: which protocol its agent speaks.
        backend: which backend runs it, such as ``gvisor``.
        isolation: the tier: ``hardware-vm``, ``emulated-vm`` or ``user-kernel``.
        mechanism: for people, such as ``gVisor systrap``.
        kernel: what ``uname`` says inside.
        image: the image, if it was made from one.
        disk_mb: MiB.
        pids: the most processes inside.
        idle_timeout: seconds without activity until it ends; None for never.
        ports: port inside → ``host:port`` outside.
        health: ``ok`` or ``unreachable``.
        end_reason: why it ended; None while it lives.
        end_detail: one line about that.
        fallback_reason: why it is on E2B's cloud instead of here, where ``fallback`` allowed that.
    """

    sandbox_id: str
    sandbox_domain: str | None
    template_id: str
    name: str | None
    metadata: dict[str, str]
    started_at: dt.datetime
    end_at: dt.datetime
    state: SandboxState
    cpu_count: int
    memory_mb: int
    envd_version: str
    allow_internet_access: bool | None = None
    network: Mapping[str, object] | None = None
    lifecycle: SandboxInfoLifecycle | None = None
    volume_mounts: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    envd_unresponsive_at_pause: bool | None = None
    backend: str = ""
    isolation: str = ""
    mechanism: str = ""
    kernel: str = ""
    image: str | None = None
    disk_mb: int = 0
    pids: int = 0
    idle_timeout: float | None = None
    ports: dict[int, str] = field(default_factory=dict[int, str])
    health: str = "ok"
    end_reason: str | None = None
    end_detail: str = ""
    fallback_reason: str | None = None


@dataclass
class SandboxMetrics:
    """What a sandbox used at one time. Sizes in bytes."""

    cpu_count: int
    cpu_used_pct: float
    disk_total: int
    disk_used: int
    mem_total: int
    mem_used: int
    mem_cache: int
    timestamp: dt.datetime


@dataclass
class SnapshotInfo:
    """A saved sandbox."""

    snapshot_id: str
    names: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Mount:
    """A host directory that a sandbox sees.

    Args:
        host_path: a directory on the host; relative ones are relative to the working directory.
        guest_path: absolute, inside the sandbox.
        read_only: whether the sandbox may not write to it.
    """

    host_path: str | PathLike[str]
    guest_path: str
    read_only: bool = False


class VolumeBind(TypedDict):
    """The long form of a value of ``volumes``: ``mode`` is ``rw`` or ``ro``."""

    bind: str
    mode: NotRequired[Literal["rw", "ro"]]


MountSpec = Mount | str | tuple[str | PathLike[str], str] | tuple[str | PathLike[str], str, str]
VolumeSpec = Mapping[str, str | VolumeBind]
