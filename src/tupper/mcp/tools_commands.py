"""Tools that run commands, look at them and end them."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tupper.mcp.commands import Command, Status
from tupper.mcp.output import Stream, excerpt
from tupper.mcp.results import CommandEnd, CommandOutcome
from tupper.mcp.server import Call, session_of
from tupper.mcp.sessions import Session, settle

MAX_CHARS = 16_000
PROGRESS_S = 1.0
KEPT_COMMANDS = 16  # that have ended; of older ones the output is given up

Sandbox = Annotated[
    str | None, Field(description="Id of a sandbox; this session's own if it is not given.")
]
Chars = Annotated[
    int, Field(ge=100, le=200_000, description="Most characters of each stream in the result.")
]


async def run_command(
    ctx: Call,
    *,
    command: Annotated[
        str, Field(min_length=1, description="For bash: pipes, &&, here documents, any length.")
    ],
    cwd: Annotated[str | None, Field(description="Where; the home if it is not given.")] = None,
    envs: Annotated[dict[str, str] | None, Field(description="Environment variables.")] = None,
    user: Annotated[str | None, Field(description="Who runs it, such as root.")] = None,
    timeout_s: Annotated[
        float | None,
        Field(ge=0, description="Ends it after so many seconds: 120, none in the background."),
    ] = None,
    background: Annotated[bool, Field(description="Return at once, and poll_command it.")] = False,
    max_chars: Chars = MAX_CHARS,
    sandbox: Sandbox = None,
) -> CommandOutcome:
    """Run a shell command in the sandbox and return its exit code, stdout and stderr.

    Another exit code than 0 is a normal result. A command that goes on, such as a server, needs
    background=true. Of long output both ends are shown; poll_command pages through the rest.
    """
    session = session_of(ctx)
    place = await session.find(sandbox)
    made = Command(session.next_command_id(), place)
    _keep(session, made)
    limit_s = timeout_s if timeout_s is not None else (0.0 if background else 120.0)
    made.start(command, cwd=cwd, envs=envs, user=user, timeout_s=limit_s)
    if background:
        await made.wait(0.05)  # so that a typing error shows at once
    else:
        await _to_its_end(ctx, made, limit_s)
    await _raise_failure(session, made)
    return _outcome(made, max_chars)


async def poll_command(
    ctx: Call,
    *,
    command_id: Annotated[str, Field(description="Of run_command's result.")],
    wait_s: Annotated[
        float, Field(ge=0, le=600, description="Wait so long for its end before looking.")
    ] = 0,
    stream: Annotated[
        Literal["stdout", "stderr"] | None, Field(description="With `start`: which one.")
    ] = None,
    start: Annotated[
        int | None,
        Field(ge=0, description="Read from this character of `stream` on, instead of what is new."),
    ] = None,
    max_chars: Chars = MAX_CHARS,
) -> CommandOutcome:
    """Whether a command still runs, and what it wrote since the last look at it.

    With `stream` and `start` it pages through what a result left out.
    """
    session = session_of(ctx)
    found = _find(session, command_id)
    if (start is None) != (stream is None):
        raise ToolError("give both `stream` and `start`, or neither")
    if wait_s and found.status is Status.RUNNING:
        await _watch(ctx, found, wait_s)
    await _raise_failure(session, found)
    if stream is not None and start is not None:
        return _page(found, stream, start, max_chars)
    return _news(found, max_chars)


async def kill_command(
    ctx: Call, *, command_id: Annotated[str, Field(description="Of run_command's result.")]
) -> CommandEnd:
    """End a command and every process that it started. One that has ended is no error."""
    found = _find(session_of(ctx), command_id)
    was_running = await settle(found.kill())
    return CommandEnd(
        command_id=command_id,
        was_running=was_running,
        status=found.status,
        exit_code=found.exit_code,
    )


def _keep(session: Session, made: Command) -> None:
    ended = [name for name, one in session.commands.items() if one.status is not Status.RUNNING]
    for name in ended[: max(0, len(ended) - KEPT_COMMANDS + 1)]:
        del session.commands[name]
    session.commands[made.command_id] = made


def _find(session: Session, command_id: str) -> Command:
    found = session.commands.get(command_id)
    if found is None:
        known = ", ".join(session.commands) or "none"
        raise ToolError(f"there is no command {command_id!r}; known are: {known}")
    return found


async def _to_its_end(ctx: Call, made: Command, limit_s: float) -> None:
    """Wait for a command in the foreground; if the client gives up, so does the command."""
    try:
        await _watch(ctx, made, None, of_s=limit_s)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await made.kill()
        raise


async def _watch(ctx: Call, made: Command, limit_s: float | None, *, of_s: float = 0) -> None:
    """Wait, and say each second how far it is: clients give up on calls that are silent."""
    started = time.monotonic()
    while True:
        spent_s = time.monotonic() - started
        left_s = PROGRESS_S if limit_s is None else min(PROGRESS_S, limit_s - spent_s)
        if left_s <= 0 or await made.wait(left_s):
            return
        line = made.stdout.last_line() or made.stderr.last_line() or "no output yet"
        await ctx.report_progress(time.monotonic() - started, of_s or limit_s, line)


async def _raise_failure(session: Session, made: Command) -> None:
    """What kept a command from running is an error of the tool, not a result."""
    failure = made.failure
    if failure is None:
        return

    async def fail() -> None:
        raise failure

    await session.use(made.sandbox, fail())


def _outcome(made: Command, max_chars: int) -> CommandOutcome:
    """Both ends of both streams."""
    notes = [made.note] if made.note else []
    texts: dict[str, str] = {}
    for name, stream in (("stdout", made.stdout), ("stderr", made.stderr)):
        shown = excerpt(stream, max_chars)
        made.seen[name] = stream.size
        texts[name] = shown.text
        if shown.cut:
            notes.append(_where(made, name, stream, shown.cut, shown.cut_at))
    return _render(made, texts, notes)


def _where(made: Command, name: str, stream: Stream, cut: int, cut_at: int) -> str:
    """How to get what was cut."""
    lost = stream.page(cut_at, 1).skipped
    note = (
        f"{cut} of {stream.size} characters of {name} are not shown: poll_command("
        f"command_id={made.command_id!r}, stream={name!r}, start={cut_at}) reads on from there"
    )
    first_lost = stream.page(cut_at, stream.size)
    if lost or first_lost.end < stream.size:
        note += (
            "; not all of it is kept, so for all of it run the command with > FILE, and read_file"
        )
    return note


def _news(made: Command, max_chars: int) -> CommandOutcome:
    """What was written since the last look."""
    notes = [made.note] if made.note else []
    texts: dict[str, str] = {}
    for name, stream in (("stdout", made.stdout), ("stderr", made.stderr)):
        page = stream.page(made.seen[name], max_chars)
        made.seen[name] = page.end
        texts[name] = page.text
        if page.skipped:
            notes.append(f"{page.skipped} characters of {name} before these are not kept any more")
        if page.end < stream.size:
            notes.append(
                f"{stream.size - page.end} more characters of {name} are there: poll_command again,"
                f" or with stream={name!r} and start={max(0, stream.size - max_chars)} for the end"
            )
    return _render(made, texts, notes)


def _page(made: Command, name: str, start: int, max_chars: int) -> CommandOutcome:
    """A part of one stream."""
    stream = made.stdout if name == "stdout" else made.stderr
    page = stream.page(start, max_chars)
    notes = [f"{name} from character {page.start} to {page.end} of {stream.size}"]
    if page.skipped:
        notes.append(f"{page.skipped} characters before these are not kept any more")
    if page.end < stream.size:
        notes.append(f"start={page.end} reads on")
    texts = {"stdout": "", "stderr": ""} | {name: page.text}
    return _render(made, texts, notes)


def _render(made: Command, texts: dict[str, str], notes: list[str]) -> CommandOutcome:
    return CommandOutcome(
        command_id=made.command_id,
        sandbox=made.sandbox.sandbox_id,
        status=made.status,
        exit_code=made.exit_code,
        stdout=texts["stdout"],
        stderr=texts["stderr"],
        stdout_size=made.stdout.size,
        stderr_size=made.stderr.size,
        notes=notes,
    )
