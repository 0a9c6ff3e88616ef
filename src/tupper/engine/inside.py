"""What the engine itself does inside a sandbox: it runs commands and moves trees, by the agent.

Used for the steps of builds and for the start commands of templates. Everything that comes back is
the guest's, and hostile.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from urllib.parse import quote

import h11

from tupper.core.errors import (
    DeadlineExceeded,
    GuestMisbehaved,
    InvalidArgument,
    TemplateError,
)
from tupper.engine.context import Context
from tupper.engine.sandbox import Sandbox
from tupper.protocol.connect import CONTENT_TYPE_STREAM, Decoder, EndOfStream, encode_envelope
from tupper.protocol.e2b import ENVD_PORT
from tupper.protocol.envd import ProcessData, ProcessEvents, ProcessStart, render_start
from tupper.protocol.fields import parse_object

STEP_S = 3600.0
_CHUNK = 256 * 1024
_BODY_MAX = 1024 * 1024
OnOutput = Callable[[bytes], None]


class Inside:
    """A running sandbox, seen from the engine."""

    def __init__(self, context: Context, sandbox: Sandbox) -> None:
        self._context = context
        self._sandbox = sandbox

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        user: str,
        on_output: OnOutput,
        on_start: Callable[[], None] | None = None,
        limit_s: float | None = STEP_S,
    ) -> int:
        """Run a command; returns its exit status, or 128 and the signal's number.

        When the caller is cancelled the command runs on.

        Args:
            argv: the program and its arguments.
            env: beside the sandbox's own.
            cwd: None for the sandbox's own, or the home.
            user: empty for the sandbox's own.
            on_output: gets what it says, standard output and error alike.
            on_start: told once it runs.
            limit_s: seconds; None for as long as it takes.

        Raises:
            DeadlineExceeded: it took longer; it runs on.
        """
        request = render_start(argv[0], argv[1:], envs=env, cwd=cwd)
        body = encode_envelope(json.dumps(request).encode())
        headers = {"Content-Type": CONTENT_TYPE_STREAM}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        decoder, events = Decoder(), ProcessEvents()
        try:
            async with asyncio.timeout(limit_s):
                answer = self._exchange("POST", "/process.Process/Start", headers, _once(body))
                async with contextlib.aclosing(answer) as chunks:
                    async for chunk in chunks:
                        for envelope in decoder.feed(chunk):
                            if isinstance(envelope, EndOfStream):
                                if envelope.error is not None:
                                    raise TemplateError(f"cannot run: {envelope.error.message}")
                                continue
                            event = events.accept(envelope.payload)
                            if isinstance(event, ProcessData):
                                on_output(event.data)
                            elif isinstance(event, ProcessStart) and on_start is not None:
                                on_start()
        except TimeoutError as error:
            raise DeadlineExceeded(f"a command was not over within {limit_s or 0:g} s") from error
        if events.end is None:
            raise GuestMisbehaved("a command ended without an end event")
        return events.end.exit_code if not events.end.signal else 128 + events.end.signal

    async def upload(self, directory: str, archive: AsyncIterator[bytes], *, user: str) -> None:
        """Unpack a tar stream into a directory inside, owned by a user."""
        path = f"/tupper/tree?path={quote(directory)}&username={quote(user or 'root')}"
        async for _ in self._exchange("POST", path, {"Content-Type": "application/x-tar"}, archive):
            pass

    def download(self, path: str) -> AsyncGenerator[bytes]:
        """A file or a directory inside as a tar stream."""
        return self._exchange("GET", f"/tupper/tree?path={quote(path)}&username=root", {}, None)

    async def kind(self, path: str) -> str:
        """``dir``, ``file`` or empty when nothing is there. Links are followed, inside."""
        body = json.dumps({"path": path}).encode()
        try:
            text = b"".join([chunk async for chunk in self._call("Stat", body)])
        except TemplateError:
            return ""
        return "dir" if b"FILE_TYPE_DIRECTORY" in text else "file"

    async def home(self, user: str) -> str:
        """The home directory of a user."""
        body = json.dumps({"path": "~"}).encode()
        text = b"".join([chunk async for chunk in self._call("Stat", body, user)])
        entry = parse_object(text).child("entry")
        return entry.text("path") if entry is not None else "/"

    async def make_directory(self, path: str, *, user: str) -> None:
        """Make a directory and its parents; one that exists is fine."""
        if await self.kind(path) != "dir":
            async for _ in self._call("MakeDir", json.dumps({"path": path}).encode(), user):
                pass

    async def move(self, source: str, target: str) -> None:
        """Rename."""
        body = json.dumps({"source": source, "destination": target}).encode()
        async for _ in self._call("Move", body):
            pass

    def _call(self, name: str, body: bytes, user: str = "root") -> AsyncGenerator[bytes]:
        basic = base64.b64encode(f"{user or 'root'}:".encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {basic}"}
        return self._exchange("POST", f"/filesystem.Filesystem/{name}", headers, _once(body))

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | None,
    ) -> AsyncGenerator[bytes]:
        """One request to the agent, both bodies as streams."""
        record = self._sandbox.record
        if record.agent is None:
            raise TemplateError("the sandbox is gone")
        reader, writer = await self._context.parts.dial(record.agent, record.token, ENVD_PORT)
        connection = h11.Connection(h11.CLIENT)
        fields = {"Host": "agent", "Connection": "close", "X-Access-Token": record.token, **headers}
        if body is not None:
            fields["Transfer-Encoding"] = "chunked"
        try:
            head = h11.Request(method=method, target=path, headers=list(fields.items()))
            writer.write(connection.send(head) or b"")
            if body is not None:
                async for chunk in body:
                    writer.write(connection.send(h11.Data(data=chunk)) or b"")
                    await writer.drain()
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            async for chunk in _read_answer(connection, reader):
                yield chunk
        except (OSError, h11.RemoteProtocolError) as error:
            raise TemplateError(f"the sandbox broke off: {error}") from error
        finally:
            writer.close()


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


async def _read_answer(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> AsyncGenerator[bytes]:
    status, complaint = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            if status < 300:
                yield bytes(event.data)
            elif len(complaint) < _BODY_MAX:
                complaint += event.data
        elif isinstance(event, h11.EndOfMessage):
            break
        elif isinstance(event, h11.ConnectionClosed):
            raise TemplateError("the sandbox closed the connection")
    if status >= 300:
        raise TemplateError(_message(bytes(complaint), status))


def _message(body: bytes, status: int) -> str:
    try:
        text = parse_object(body).text("message")
    except InvalidArgument:
        text = ""
    return f"inside: {text[:1000]}" if text else f"inside: HTTP status {status}"
