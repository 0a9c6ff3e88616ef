"""``POST /sandboxes/{id}/commands``: one command in one request, for callers without an SDK.

The answer is the whole result, or server-sent events where the caller accepts them. The command
belongs to the request: who hangs up ends it, with all that it started.

Source: ``docs/http.md``; https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tupper.core.errors import GuestMisbehaved, InvalidArgument, TupperError
from tupper.engine import Engine
from tupper.protocol import envd
from tupper.protocol.connect import (
    CONTENT_TYPE_STREAM,
    CONTENT_TYPE_UNARY,
    Code,
    ConnectError,
    Decoder,
    EndOfStream,
    parse_error,
    parse_json,
    render_json,
    render_message,
)
from tupper.protocol.e2b import render_error
from tupper.protocol.fields import Fields
from tupper.server.activity import Activity
from tupper.server.http import (
    activity_of,
    answer,
    engine_of,
    guarded,
    param,
    plain_failure,
    read_body,
    while_connected,
)
from tupper.server.inside import Ask, Told, asking, find_awake

KEPT_BYTES = 8 * 1024 * 1024
_DEFAULT_S = 60.0
_MOST_S = 24 * 3600.0
_PING_S = 15.0
_LATE = 124  # as timeout(1) says it
_WORDS = ("command", "cwd", "env", "user", "stdin", "timeout", "background")


def routes() -> list[Route]:
    """The route."""
    return [Route("/sandboxes/{id}/commands", guarded(_run), methods=["POST"])]


@dataclass(frozen=True, slots=True)
class Command:
    """What shall be run.

    Args:
        argv: the program and its arguments.
        cwd, user: empty for the sandbox's default.
        env: on top of the sandbox's.
        stdin: its whole input; None for none.
        timeout_s: None for no limit.
        is_background: the answer comes at once, and the command goes on.
    """

    argv: tuple[str, ...]
    cwd: str
    user: str
    env: Mapping[str, str]
    stdin: str | None
    timeout_s: float | None
    is_background: bool


def parse_command(body: Fields) -> Command:
    """The command of a request's body.

    Raises:
        InvalidArgument: naming the key.
    """
    body.refuse_unknown(_WORDS)
    timeout_s: float | None = _DEFAULT_S
    if body.has("timeout"):
        timeout_s = body.number("timeout")
    if timeout_s is not None and not 0 < timeout_s <= _MOST_S:
        raise InvalidArgument(f"timeout must be above 0 and at most {_MOST_S:g} s, or null")
    is_background = body.flag("background") is True
    if is_background and body.has("stdin"):
        raise InvalidArgument("a command in the background takes no stdin")
    return Command(
        argv=_argv(body),
        cwd=body.text("cwd"),
        user=body.text("user"),
        env=body.text_map("env"),
        stdin=body.text("stdin") if body.has("stdin") else None,
        timeout_s=timeout_s if body.has("timeout") or not is_background else None,
        is_background=is_background,
    )


def _argv(body: Fields) -> tuple[str, ...]:
    if isinstance(body.values.get("command"), list):
        argv = body.texts("command")
        if not argv or any("\0" in word for word in argv):
            raise InvalidArgument("command must name a program, without NUL characters")
        return argv
    text = body.text("command")
    if not text:
        raise InvalidArgument("command is missing")
    return ("/bin/bash", "-l", "-c", text)


async def _run(request: Request) -> Response:
    command = parse_command(await read_body(request))
    engine, activity = engine_of(request), activity_of(request)
    sandbox_id = await find_awake(engine, param(request))
    try:
        if command.is_background:
            return answer(await _begin(engine, sandbox_id, command, activity), 202)
        if "text/event-stream" in request.headers.get("accept", ""):
            return await _stream(engine, sandbox_id, command, activity)
        return answer(
            await while_connected(request, _collect(engine, sandbox_id, command, activity))
        )
    except ConnectError as error:
        return refusal(error)


def refusal(error: ConnectError) -> Response:
    """The answer for what the agent refused."""
    # The caller has shown who it is: an unknown user inside is no matter of its key.
    code = Code.INVALID_ARGUMENT if error.code is Code.UNAUTHENTICATED else error.code
    return plain_failure(code.http_status, error.message, str(code))


async def _begin(
    engine: Engine, sandbox_id: str, command: Command, activity: Activity
) -> Mapping[str, object]:
    async with contextlib.aclosing(_events(engine, sandbox_id, command, activity)) as events:
        async for event in events:
            if isinstance(event, envd.ProcessStart):
                return {"pid": event.pid}
    raise GuestMisbehaved("the agent started nothing")


@dataclass(slots=True)
class _Kept:
    """The first part of an output."""

    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, piece: bytes) -> None:
        room = max(0, KEPT_BYTES - len(self.data))
        self.data += piece[:room]
        self.dropped += max(0, len(piece) - room)

    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


async def _collect(
    engine: Engine, sandbox_id: str, command: Command, activity: Activity
) -> Mapping[str, object]:
    out = {stream: _Kept() for stream in envd.Stream}
    end: Mapping[str, object] = {}
    async with contextlib.aclosing(_events(engine, sandbox_id, command, activity)) as events:
        async for event in events:
            if isinstance(event, envd.ProcessData):
                out[event.stream].add(event.data)
            elif isinstance(event, envd.ProcessEnd):
                end = _render_end(event)
    stdout, stderr = out[envd.Stream.STDOUT], out[envd.Stream.STDERR]
    return {
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        **end,
        "dropped_bytes": stdout.dropped + stderr.dropped,
    }


def _render_end(end: envd.ProcessEnd) -> dict[str, object]:
    is_late = end.limit in ("time", "timeout")
    code = end.exit_code if end.exited else 128 + end.signal if end.signal else -1
    return {
        "exit_code": _LATE if is_late else code,
        "timed_out": is_late,
        "status": end.status,
    }


async def _stream(
    engine: Engine, sandbox_id: str, command: Command, activity: Activity
) -> Response:
    """Events from the start on: what fails before has a status of its own."""
    events = _events(engine, sandbox_id, command, activity)
    try:
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    headers = {"Cache-Control": "no-store"}
    lines = _lines(first, events)
    return StreamingResponse(lines, 200, headers, media_type="text/event-stream")


async def _lines(
    first: envd.ProcessEvent, events: AsyncGenerator[envd.ProcessEvent]
) -> AsyncIterator[bytes]:
    texts = {s: codecs.getincrementaldecoder("utf-8")("replace") for s in envd.Stream}
    async with contextlib.aclosing(events):
        try:
            if isinstance(first, envd.ProcessStart):
                yield _event("start", {"pid": first.pid})
            async for event in events:
                if isinstance(event, envd.ProcessData):
                    if text := texts[event.stream].decode(event.data):
                        yield _event(str(event.stream), {"text": text})
                elif isinstance(event, envd.ProcessEnd):
                    for stream, decoder in texts.items():
                        if text := decoder.decode(b"", final=True):
                            yield _event(str(stream), {"text": text})
                    yield _event("exit", _render_end(event))
                else:
                    yield b": still running\n\n"
        except ConnectError as error:
            yield _event("error", {"message": error.message, "error_code": str(error.code)})
        except TupperError as error:
            yield _event("error", render_error(error))


def _event(name: str, value: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()


async def _events(
    engine: Engine, sandbox_id: str, command: Command, activity: Activity
) -> AsyncGenerator[envd.ProcessEvent]:
    """Start a command; its events. Left early, it ends the command, unless in the background.

    Raises:
        ConnectError: the agent refuses it.
    """
    grammar, decoder = envd.ProcessEvents(), Decoder()
    pid, feeding = 0, None
    async with asking(engine, sandbox_id, _start(command), answer_s=None) as told:
        if told.status != 200:
            raise parse_error(_json(await told.text(65536)), status=told.status)
        try:
            async for event in _decoded(told, decoder, grammar):
                if isinstance(event, envd.ProcessStart):
                    pid = event.pid
                    feeding = asyncio.ensure_future(_feed(engine, sandbox_id, pid, command.stdin))
                yield event
            if grammar.end is None:
                raise GuestMisbehaved("a command's stream ends without its end")
        finally:
            if feeding is not None:
                feeding.cancel()
            if pid and grammar.end is None and not command.is_background:
                # A task of its own: this one is being cancelled, and so is all that it awaits.
                activity.own(asyncio.ensure_future(_kill(engine, sandbox_id, pid)))


async def _decoded(
    told: Told, decoder: Decoder, grammar: envd.ProcessEvents
) -> AsyncIterator[envd.ProcessEvent]:
    async for chunk in told.body:
        for envelope in decoder.feed(chunk):
            if isinstance(envelope, EndOfStream):
                error = envelope.error
                if error is not None and error.code is Code.DEADLINE_EXCEEDED:
                    grammar.end = envd.ProcessEnd(-1, False, error.message, limit="time")
                    yield grammar.end
                elif error is not None and grammar.end is None:
                    raise error
            else:
                yield grammar.accept(envelope.payload)


def _start(command: Command) -> Ask:
    cmd, *args = command.argv
    body = envd.render_start(
        cmd, args, envs=command.env, cwd=command.cwd or None, stdin=command.stdin is not None
    )
    headers = {
        "Content-Type": CONTENT_TYPE_STREAM,
        "Connect-Protocol-Version": "1",
        "Keepalive-Ping-Interval": f"{_PING_S:g}",
    }
    if command.timeout_s is not None:
        headers["Connect-Timeout-Ms"] = str(int(command.timeout_s * 1000))
    return Ask("POST", "/process.Process/Start", headers, render_message(body), command.user)


async def _feed(engine: Engine, sandbox_id: str, pid: int, stdin: str | None) -> None:
    """Give a command its input. One that does not read it is no error of ours."""
    if stdin is None:
        return
    selector, data = envd.render_selector(pid), stdin.encode("utf-8", "replace")
    with contextlib.suppress(TupperError, OSError):
        for start in range(0, len(data), 64 * 1024):
            piece = data[start : start + 64 * 1024]
            body = envd.render_input(selector, piece, pty=False)
            if await _tell(engine, sandbox_id, "SendInput", body) >= 300:
                return
        await _tell(engine, sandbox_id, "CloseStdin", {"process": selector})


async def _kill(engine: Engine, sandbox_id: str, pid: int) -> None:
    body = {"process": envd.render_selector(pid), "signal": "SIGNAL_SIGKILL"}
    with contextlib.suppress(TupperError, OSError):
        await _tell(engine, sandbox_id, "SendSignal", body)


async def _tell(engine: Engine, sandbox_id: str, call: str, body: Mapping[str, object]) -> int:
    headers = {"Content-Type": CONTENT_TYPE_UNARY, "Connect-Protocol-Version": "1"}
    ask = Ask("POST", f"/process.Process/{call}", headers, render_json(body))
    async with asking(engine, sandbox_id, ask) as told:
        await told.text(65536)
        return told.status


def _json(body: bytes) -> object:
    try:
        return parse_json(body, "the agent's answer")
    except GuestMisbehaved:
        return None
