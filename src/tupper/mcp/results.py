"""What tools return. The descriptions are for models, which read the schemas."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Notes = Annotated[
    list[str],
    Field(description="What is not shown and how to get it, and what else there is to know."),
]


class SandboxFacts(BaseModel):
    """A sandbox."""

    sandbox: Annotated[str, Field(description="Its id, for the argument `sandbox`.")]
    state: str
    template: str
    is_default: Annotated[bool, Field(description="Whether it is used when none is named.")]
    ends_with_session: bool
    cpus: int
    memory_mib: int
    internet: bool | None = None
    isolation: str = ""
    name: str | None = None
    started_at: str = ""
    notes: Notes = []


class SandboxList(BaseModel):
    """The sandboxes that this client can use."""

    sandboxes: list[SandboxFacts]
    notes: Notes = []


class SandboxEnd(BaseModel):
    """What became of a sandbox that was to be ended."""

    sandbox: str
    was_running: bool
    notes: Notes = []


class SnapshotFacts(BaseModel):
    """A snapshot."""

    snapshot: Annotated[str, Field(description="For create_sandbox's argument `snapshot`.")]
    sandbox: str
    names: list[str]
    notes: Notes = []


class PortFacts(BaseModel):
    """A port of a sandbox, reachable from this machine."""

    sandbox: str
    port: int
    address: Annotated[str, Field(description="host:port on this machine")]
    url: str
    notes: Notes = []


class CommandOutcome(BaseModel):
    """A command, its output and how it ended."""

    command_id: Annotated[str, Field(description="For poll_command and kill_command.")]
    sandbox: str
    status: Annotated[
        str, Field(description="running, exited, timed_out, killed or failed (see notes)")
    ]
    exit_code: Annotated[
        int | None, Field(description="None unless exited; 128 + n when signal n ended it.")
    ]
    stdout: str
    stderr: str
    stdout_size: Annotated[int, Field(description="Characters written so far, shown or not.")]
    stderr_size: Annotated[int, Field(description="Characters written so far, shown or not.")]
    notes: Notes = []


class CommandEnd(BaseModel):
    """What became of a command that was to be ended."""

    command_id: str
    was_running: bool
    status: str
    exit_code: int | None


class CodeOutcome(BaseModel):
    """What code printed and gave."""

    sandbox: str
    stdout: str
    stderr: str
    results: Annotated[
        list[dict[str, str]],
        Field(description="Each result as type → content, such as text, html, markdown, json."),
    ]
    error: Annotated[str | None, Field(description="The traceback, if the code raised.")] = None
    notes: Notes = []


class FileContent(BaseModel):
    """A part of a file, or all of it."""

    path: str
    encoding: Annotated[str, Field(description="text or base64")]
    content: str
    size_bytes: Annotated[int, Field(description="Of the whole file.")]
    next_start: Annotated[
        int | None, Field(description="`start` for the next part; None at the end of the file.")
    ]
    notes: Notes = []


class FileWritten(BaseModel):
    """A file that was written."""

    path: str
    size_bytes: int


class FileEdited(BaseModel):
    """A file that was changed."""

    path: str
    replacements: int
    size_bytes: int


class Entry(BaseModel):
    """A file or a directory."""

    path: str
    type: Annotated[str, Field(description="file, dir or symlink")]
    size_bytes: int
    permissions: str
    modified_at: str
    target: Annotated[str | None, Field(description="Of a symlink.")] = None


class EntryList(BaseModel):
    """A directory."""

    path: str
    entries: list[Entry]
    total: int
    next_start: Annotated[
        int | None, Field(description="`start` for the next part; None at the end.")
    ]
    notes: Notes = []


class Match(BaseModel):
    """A line that matches, or a file whose name does."""

    path: str
    line: int | None = None
    text: str = ""


class MatchList(BaseModel):
    """What was found."""

    matches: list[Match]
    next_start: Annotated[
        int | None, Field(description="`start` for the next part; None at the end.")
    ]
    notes: Notes = []


class CopyOutcome(BaseModel):
    """What was copied between this machine and a sandbox."""

    direction: str
    host_path: str
    sandbox_path: str
