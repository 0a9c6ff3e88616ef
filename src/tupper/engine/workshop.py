"""A sandbox for one step of a build: it writes into a new layer on top of others.

Nothing of a build runs on the host's own kernel, and the host never writes into a tree that the
guest has written to: files come in and go out through the agent. A workshop is a sandbox like any
other (recorded before it exists, undone on failure, swept after a crash), only without a name, a
listing or a deadline of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import h11

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import (
    DeadlineExceeded,
    GuestMisbehaved,
    InvalidArgument,
    TemplateError,
    TupperError,
)
from tupper.core.ids import new_sandbox_id, new_token
from tupper.core.lifecycle import EndReason, ExitReason, State
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.version import VERSION
from tupper.engine.context import Context
from tupper.engine.creation import Creation
from tupper.engine.ending import begin_end
from tupper.engine.mounts import mount_overlay, unmount_below
from tupper.engine.request import decide_limits
from tupper.engine.sandbox import Sandbox
from tupper.protocol.connect import CONTENT_TYPE_STREAM, Decoder, EndOfStream, encode_envelope
from tupper.protocol.e2b import ENVD_PORT
from tupper.protocol.envd import ProcessData, ProcessEvents, render_start
from tupper.protocol.fields import parse_object

STEP_S = 3600.0
_STOP_S = 15.0
_CHUNK = 256 * 1024
_BODY_MAX = 1024 * 1024
_KEPT = ".tupper-build"
OnOutput = Callable[[bytes], None]


class Workshop:
    """A running sandbox on a stack of layers. Made by :func:`open_workshop`."""

    def __init__(self, context: Context, sandbox: Sandbox) -> None:
        self._context = context
        self._sandbox = sandbox

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        user: str,
        on_output: OnOutput,
    ) -> int:
        """Run a command; returns its exit status, or 128 and the signal's number.

        Raises:
            DeadlineExceeded: after an hour.
        """
        request = render_start(argv[0], argv[1:], envs=env, cwd=cwd)
        body = encode_envelope(json.dumps(request).encode())
        headers = {"Content-Type": CONTENT_TYPE_STREAM}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        decoder, events = Decoder(), ProcessEvents()
        try:
            async with asyncio.timeout(STEP_S):
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
        except TimeoutError as error:
            raise DeadlineExceeded(f"a step was not over within {STEP_S:g} s") from error
        if events.end is None:
            raise GuestMisbehaved("a command of a build ended without an end event")
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
            raise TemplateError("the build's sandbox is gone")
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
            raise TemplateError(f"the build's sandbox broke off: {error}") from error
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
            raise TemplateError("the build's sandbox closed the connection")
    if status >= 300:
        raise TemplateError(_message(bytes(complaint), status))


def _message(body: bytes, status: int) -> str:
    try:
        text = parse_object(body).text("message")
    except InvalidArgument:
        text = ""
    return f"inside: {text[:1000]}" if text else f"inside: HTTP status {status}"


@contextlib.asynccontextmanager
async def open_workshop(
    context: Context, lowers: Sequence[Path], config: ImageConfig, keep_at: Path | None
) -> AsyncGenerator[Workshop]:
    """A sandbox that writes on top of layers.

    Args:
        context: of the engine.
        lowers: the layers, the lowest first.
        config: of the image so far.
        keep_at: where the new layer goes if all went well; None throws it away.
    """
    sandbox_id = new_sandbox_id()
    place = build_directory(context) / f"tmp-{sandbox_id}"
    place.mkdir(mode=0o700, parents=True)
    try:
        merged = await mount_overlay(place, lowers)
        _keep_tmp(merged)
        sandbox = _reserve(context, sandbox_id)
        try:
            ground = Rootfs("", merged, config)
            request = CreateRequest(timeout_s=None)
            await Creation(context, sandbox, request, ground=ground).run()
            yield Workshop(context, sandbox)
            await _write_back(sandbox)
        finally:
            await asyncio.shield(_end(context, sandbox))
        await unmount_below(place)
        _keep_tmp(place / "upper", undo=True)
        if keep_at is not None:
            (place / "upper").rename(keep_at)
    finally:
        await asyncio.shield(_clear(place))


def _keep_tmp(root: Path, *, undo: bool = False) -> None:
    """Put a directory into /tmp, or take it away again.

    gVisor lays a file system in memory over a /tmp that is empty, and a build's files there would
    be gone after its step. The tree may be hostile: no link in it is followed.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        top = os.open(root, flags)
        try:
            tmp = os.open("tmp", flags, dir_fd=top)
            try:
                change = os.rmdir if undo else os.mkdir
                change(_KEPT, dir_fd=tmp)
            finally:
                os.close(tmp)
        finally:
            os.close(top)


def build_directory(context: Context) -> Path:
    """Where layers of builds are."""
    return context.paths.data / "build"


def _reserve(context: Context, sandbox_id: str) -> Sandbox:
    limits = decide_limits(CreateRequest(), context.settings)
    record = SandboxRecord(
        id=sandbox_id,
        state=State.STARTING,
        token=new_token(),
        purpose="build",
        created_at=time.time(),
        cpus=limits.cpus,
        memory_mib=max(limits.memory_mib, 2048),
        disk_mib=limits.disk_mib,
        pids=limits.pids,
        boot_id=context.boot_id,
        started_by=VERSION,
    )
    sandbox = Sandbox(record)
    context.sandboxes[sandbox_id] = sandbox
    return sandbox


async def _write_back(sandbox: Sandbox) -> None:
    """Have the guest write everything to the layer before its kernel is ended."""
    with contextlib.suppress(TupperError, OSError, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            await sandbox.agent.shutdown(grace_s=1)
            if sandbox.machine is not None:
                await sandbox.machine.wait()


async def _end(context: Context, sandbox: Sandbox) -> None:
    if sandbox.machine is not None:
        async with sandbox.lock:
            task = begin_end(context, sandbox, ExitReason(EndReason.KILLED, "the step is over"))
        await task
    context.sandboxes.pop(sandbox.id, None)
    await context.store.forget(sandbox.id)


async def _clear(place: Path) -> None:
    await unmount_below(place)
    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
