"""Files of a sandbox: read, write, list, move, and whole trees."""

from __future__ import annotations

import builtins
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, Self, overload

from tupper.core.errors import GuestMisbehaved, TupperError
from tupper.protocol import connect, envd
from tupper.sdk._async.agent import FILESYSTEM, Agent
from tupper.sdk._async.upload import compressed, render_body, tree_pieces
from tupper.sdk._io_async import Body, Reply, in_thread
from tupper.sdk._shared import errors
from tupper.sdk._shared.info import entry_from_envd, parse_write
from tupper.sdk._shared.link import Answer, Ask, LinkError
from tupper.sdk._shared.metadata import metadata_headers
from tupper.sdk._shared.tree import TreeReader
from tupper.sdk._shared.types import (
    AsyncWriteData,
    AsyncWriteEntry,
    EntryInfo,
    FileType,
    WriteInfo,
)
from tupper.sdk._shared.untar import TreeWriter

IDLE_TIMEOUT_S = 60.0  # without a byte, a transfer is given up; its length does not matter
TREE = "/tupper/tree"


class AsyncFileStreamReader:
    """The bytes of a file as they come: iterate over it, once. Closes itself at the end.

    Args:
        reply: of the agent.
        agent: to explain failures.
        is_gzip: whether the bytes are compressed on their way.
    """

    def __init__(self, reply: Reply, agent: Agent, *, is_gzip: bool) -> None:
        self._reply = reply
        self._agent = agent
        self._unzip = zlib.decompressobj(wbits=31) if is_gzip else None

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> bytes:
        """The next bytes."""
        while True:
            try:
                chunk = await self._reply.read()
            except LinkError as error:
                await self.close()
                raise await self._agent.explain(error) from error
            if not chunk:
                await self.close()
                raise StopAsyncIteration
            data = chunk if self._unzip is None else self._unzip.decompress(chunk)
            if data:
                return data

    async def __aenter__(self) -> Self:
        """Itself; the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Stop reading."""
        await self._reply.close()


class FileCalls:
    """Works with files. ``sandbox.files`` is its subclass.

    Relative paths are relative to the user's home. What is made belongs to the user.

    Args:
        agent: of the sandbox.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @overload
    async def read(
        self,
        path: str,
        format: Literal["text"] = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str: ...

    @overload
    async def read(
        self,
        path: str,
        format: Literal["bytes"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> bytearray: ...

    @overload
    async def read(
        self,
        path: str,
        format: Literal["stream"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> AsyncFileStreamReader: ...

    async def read(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str | bytearray | AsyncFileStreamReader:
        """Read a file.

        Args:
            path: of a regular file; also of one in /proc that says it has no size.
            format: ``text`` (UTF-8; other bytes become U+FFFD), ``bytes``, or ``stream`` for an
                iterator that never holds the whole file.
            user: on whose behalf; decides what a relative path means.
            request_timeout: seconds until the first byte, and between two of them.
            gzip: compress on the way; worth it only to a server elsewhere.
            stream_idle_timeout: seconds between two bytes of a stream, if other than that.

        Errors:
            FileNotFoundException: there is no such file.
            InvalidArgumentException: it is a directory or another thing than a regular file.
        """
        query = _path_query(path, user)
        headers = {"Accept-Encoding": "gzip" if gzip else "identity"}
        limit_s = self._agent.limit(request_timeout)
        if format == "stream" and stream_idle_timeout is not None:
            limit_s = stream_idle_timeout or None
        reader = await self._open_read(Ask("GET", "/files", query, headers, limit_s))
        if format == "stream":
            return reader
        data = bytearray()
        async for chunk in reader:
            data += chunk
        return data.decode("utf-8", "replace") if format == "text" else data

    async def _open_read(self, ask: Ask) -> AsyncFileStreamReader:
        try:
            reply = await self._agent.open(ask)
            if reply.status not in (200, 204):
                try:
                    body = await reply.read_all(1 << 20)
                finally:
                    await reply.close()
                raise _failure(Answer(reply.status, reply.headers, body))
        except LinkError as error:
            raise await self._agent.explain(error) from error
        is_gzip = reply.headers.get("content-encoding", "") == "gzip"
        return AsyncFileStreamReader(reply, self._agent, is_gzip=is_gzip)

    async def write(
        self,
        path: str,
        data: AsyncWriteData,
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteInfo:
        """Write a file, and the directories that lead to it.

        Args:
            path: of the file; it is replaced if it exists.
            data: text, bytes, a file object, or an iterable of bytes. Objects and iterables are
                streamed.
            user: who shall own it.
            request_timeout: seconds without progress.
            gzip: compress on the way; worth it only to a server elsewhere.
            use_octet_stream: exists for compatibility; it always is one here.
            metadata: kept with the file, and given by ``get_info``.

        Errors:
            NotEnoughSpaceException: the disk is full.
            InvalidArgumentException: the path is a directory, or no data of this kind can be sent.
        """
        headers = {"Content-Type": "application/octet-stream", **metadata_headers(metadata)}
        body = render_body(data)
        if gzip:
            headers["Content-Encoding"] = "gzip"
            body = compressed(body)
        limit_s = self._agent.limit(request_timeout)
        ask = Ask("POST", "/files", _path_query(path, user), headers, limit_s)
        answer = await self._transfer(ask, body)
        return parse_write(_parse(answer.body))

    async def _transfer(self, ask: Ask, body: Body) -> Answer:
        """Send a body of any size; the time limit is one of silence, not of the whole."""
        try:
            reply = await self._agent.open(ask, body)
            try:
                answer = Answer(reply.status, reply.headers, await reply.read_all(1 << 20))
            finally:
                await reply.close()
        except LinkError as error:
            raise await self._agent.explain(error) from error
        if answer.status >= 300:
            raise _failure(answer)
        return answer

    async def write_files(
        self,
        files: Sequence[AsyncWriteEntry],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> builtins.list[WriteInfo]:
        """Write several files, in order. The arguments are those of :meth:`write`."""
        seen: set[str] = set()
        for file in files:
            if file["path"] in seen:
                raise errors.InvalidArgumentException(f"{file['path']!r} is there twice")
            seen.add(file["path"])
        return [
            await self.write(
                file["path"], file["data"], user, request_timeout, gzip, metadata=metadata
            )
            for file in files
        ]

    async def list(
        self,
        path: str,
        depth: int | None = 1,
        user: str | None = None,
        request_timeout: float | None = None,
    ) -> builtins.list[EntryInfo]:
        """The entries of a directory, directories before what is in them.

        Args:
            path: of the directory.
            depth: how many levels; 1 for its own entries.
            user: decides what a relative path means.
            request_timeout: seconds.

        Errors:
            FileNotFoundException: there is no such directory.
            InvalidArgumentException: it is none, or ``depth`` is less than 1.
        """
        if depth is not None and depth < 1:
            raise errors.InvalidArgumentException(f"depth={depth} is less than 1")
        message = {"path": _check(path), "depth": depth or 1}
        answer = await self._call("ListDir", message, user, request_timeout)
        with errors.honest():
            return [entry_from_envd(entry) for entry in envd.parse_entries_reply(answer)]

    async def exists(
        self, path: str, user: str | None = None, request_timeout: float | None = None
    ) -> bool:
        """Whether there is something at this path."""
        try:
            await self._call("Stat", {"path": _check(path)}, user, request_timeout)
        except errors.FileNotFoundException:
            return False
        return True

    async def get_info(
        self, path: str, user: str | None = None, request_timeout: float | None = None
    ) -> EntryInfo:
        """What there is at a path.

        Errors:
            FileNotFoundException: nothing.
        """
        answer = await self._call("Stat", {"path": _check(path)}, user, request_timeout)
        with errors.honest():
            return entry_from_envd(envd.parse_entry_reply(answer))

    async def remove(
        self, path: str, user: str | None = None, request_timeout: float | None = None
    ) -> None:
        """Remove a file, or a directory and all that is in it. A missing one is no error."""
        await self._call("Remove", {"path": _check(path)}, user, request_timeout)

    async def rename(
        self,
        old_path: str,
        new_path: str,
        user: str | None = None,
        request_timeout: float | None = None,
    ) -> EntryInfo:
        """Move a file or a directory.

        Errors:
            FileNotFoundException: there is nothing at ``old_path``.
        """
        message = {"source": _check(old_path), "destination": _check(new_path)}
        answer = await self._call("Move", message, user, request_timeout)
        with errors.honest():
            return entry_from_envd(envd.parse_entry_reply(answer))

    async def make_dir(
        self, path: str, user: str | None = None, request_timeout: float | None = None
    ) -> bool:
        """Make a directory, and those that lead to it.

        Returns:
            False if it was there.
        """
        try:
            await self._call("MakeDir", {"path": _check(path)}, user, request_timeout)
        except errors.ConflictException:
            return False
        return True

    async def _call(
        self,
        method: str,
        message: Mapping[str, object],
        user: str | None,
        request_timeout: float | None,
    ) -> object:
        return await self._agent.unary(
            FILESYSTEM + method,
            message,
            user=user,
            request_timeout=request_timeout,
            missing=errors.FileNotFoundException,
        )

    async def download(
        self,
        remote: str,
        local: str | PathLike[str],
        *,
        user: str | None = None,
        max_bytes: int | None = None,
        max_entries: int | None = None,
    ) -> None:
        """Copy a directory (or a file) of the sandbox to this machine.

        What the sandbox sends is not trusted: nothing is written outside ``local``, links are kept
        as links and never followed, devices and the like are left out, set-id bits are cleared. If
        it fails, what it has made is removed.

        Args:
            remote: the directory in the sandbox.
            local: the directory here; it is made if it is missing, and merged into if not.
            user: decides what a relative path means.
            max_bytes: of content that are taken at most; None for a limit of 64 GiB.
            max_entries: files and directories that are taken at most; None for a million.

        Errors:
            FileNotFoundException: there is no such directory in the sandbox.
            ProtocolException: a name that leads outside, more than the limits, a broken archive.
        """
        if (await self.get_info(remote, user)).type is FileType.FILE:
            await self._download_file(remote, Path(local), user)
            return
        self._agent.refuse_cloud("download of a directory")
        ask = Ask("GET", TREE, _path_query(remote, user), {"Accept-Encoding": "identity"})
        reader = await self._open_read(ask)
        writer = TreeWriter(local, max_bytes=max_bytes, max_entries=max_entries)
        try:
            async for chunk in reader:
                await in_thread(partial(writer.feed, chunk))
            writer.finish()
        except BaseException as error:
            writer.undo()
            if isinstance(error, GuestMisbehaved):
                raise errors.ProtocolException(error.message) from error
            raise
        finally:
            writer.close()
            await reader.close()

    async def _download_file(self, remote: str, local: Path, user: str | None) -> None:
        """One file, written under another name and renamed when it is whole."""
        is_directory = await in_thread(local.is_dir)
        target = local / remote.rstrip("/").rpartition("/")[2] if is_directory else local
        target.parent.mkdir(parents=True, exist_ok=True)
        reader = await self.read(remote, "stream", user)
        unfinished = target.with_name(f".tupper-{secrets.token_hex(8)}")
        try:
            with unfinished.open("xb") as file:
                async for chunk in reader:
                    await in_thread(partial(file.write, chunk))
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
            await reader.close()

    async def upload(
        self,
        local: str | PathLike[str],
        remote: str,
        *,
        user: str | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        """Copy a directory (or a file) of this machine into the sandbox.

        Links are copied as links, modes and times are kept; what is neither file, directory nor
        link is left out.

        Args:
            local: the directory here.
            remote: the directory in the sandbox; it is made if it is missing, and merged into if
                not.
            user: who shall own the copy.
            exclude: names (``.git``) or patterns (``*.pyc``) that are left out at every level.

        Errors:
            InvalidArgumentException: ``local`` does not exist.
            NotEnoughSpaceException: the disk is full.
        """
        source = Path(local)
        if await in_thread(source.is_file):
            with source.open("rb") as file:  # noqa: ASYNC230 - opening a local file is quick
                await self.write(remote, file, user)
            return
        self._agent.refuse_cloud("upload of a directory")
        tree = TreeReader(source, exclude)
        headers = {"Content-Type": "application/x-tar"}
        ask = Ask("POST", TREE, _path_query(remote, user), headers)
        await self._transfer(ask, tree_pieces(tree))


def _check(path: str) -> str:
    if "\0" in path:
        raise errors.InvalidArgumentException(f"path {path!r} contains a NUL character")
    return path


def _path_query(path: str, user: str | None) -> dict[str, str]:
    query = {"path": _check(path)}
    if user:
        query["username"] = user
    return query


def _parse(body: bytes) -> object:
    try:
        return connect.parse_json(body, "the answer to an upload")
    except GuestMisbehaved as error:
        raise errors.ProtocolException(error.message) from error


def _failure(answer: Answer) -> TupperError:
    try:
        found = connect.as_object(json.loads(answer.body.decode(errors="replace")))
    except (ValueError, RecursionError):
        found = None
    text = (found or {}).get("message")
    message = text if isinstance(text, str) else f"HTTP status {answer.status}"
    return errors.from_status(answer.status, message[: connect.ERROR_TEXT_MAX])
