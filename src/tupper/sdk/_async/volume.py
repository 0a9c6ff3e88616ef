"""Volumes: directories that outlive sandboxes, read and written from outside too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Literal, Self, Unpack, overload
from urllib.parse import quote

from tupper.protocol.connect import as_list, as_object
from tupper.sdk._async.control import Control, decode
from tupper.sdk._async.upload import render_body
from tupper.sdk._io_async import Body, Reply
from tupper.sdk._shared import errors
from tupper.sdk._shared.both import Both
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.link import Answer, Ask, LinkError
from tupper.sdk._shared.types import ApiParams, AsyncWriteData
from tupper.sdk._shared.volume import (
    VolumeAndToken,
    VolumeApiParams,
    VolumeEntryStat,
    VolumeInfo,
    parse_stat,
    parse_volume,
    render_owner,
)

FILE_TIMEOUT_S = 3600.0


async def _get_info_by_id(
    cls: type[AsyncVolume], volume_id: str, **opts: Unpack[ApiParams]
) -> VolumeAndToken:
    """A volume, by its id or name.

    Errors:
        VolumeNotFoundException: there is none.
    """
    control = Control(find_target(opts))
    try:
        return await _find(control, volume_id)
    finally:
        await control.close()


async def _list_all(cls: type[AsyncVolume], **opts: Unpack[ApiParams]) -> list[VolumeInfo]:
    """All volumes."""
    control = Control(find_target(opts))
    try:
        found = as_list(decode(await control.call("GET", "/volumes"))) or []
    finally:
        await control.close()
    volumes = [parse_volume(each) for each in found]
    return [VolumeInfo(volume.volume_id, volume.name) for volume in volumes]


async def _find(control: Control, volume_id: str) -> VolumeAndToken:
    answer = await _ask(control, "GET", _route(volume_id))
    return parse_volume(decode(answer))


async def _ask(
    control: Control, method: str, path: str, body: Mapping[str, object] | None = None
) -> Answer:
    try:
        return await control.call(method, path, body=body)
    except errors.NotFoundException as error:
        raise errors.VolumeNotFoundException(error.message, status_code=404) from error
    except errors.SandboxException as error:
        raise errors.volume_failure(error) from error


def _route(volume_id: str) -> str:
    if not volume_id:
        raise errors.InvalidArgumentException("the volume id is empty")
    return f"/volumes/{quote(volume_id, safe='')}"


class AsyncVolume:
    """A directory that outlives sandboxes and can be seen in several at once.

    Made by :meth:`create` or :meth:`connect`, not by its constructor. Sandboxes get it with
    ``volume_mounts={"/data": volume}``.

    Args:
        control: the control plane that it belongs to.
        info: what that answered.
    """

    def __init__(self, control: Control, info: VolumeAndToken) -> None:
        self._control = control
        self._info = info

    @property
    def volume_id(self) -> str:
        """``v`` and 20 letters or digits."""
        return self._info.volume_id

    @property
    def name(self) -> str:
        """As given."""
        return self._info.name

    @property
    def token(self) -> str | None:
        """What requests for its content bring."""
        return self._info.token

    @classmethod
    async def create(cls, name: str, **opts: Unpack[ApiParams]) -> Self:
        """Make an empty volume.

        Args:
            name: letters, digits, ``_`` and ``-``; unique.
            opts: how to reach the server.

        Errors:
            VolumeException: the name is taken or cannot be one.
        """
        control = Control(find_target(opts))
        answer = await _ask(control, "POST", "/volumes", {"name": name})
        return cls(control, parse_volume(decode(answer)))

    @classmethod
    async def connect(cls, volume_id: str, **opts: Unpack[ApiParams]) -> Self:
        """A volume that exists, by its id or name.

        Errors:
            VolumeNotFoundException: there is none.
        """
        control = Control(find_target(opts))
        return cls(control, await _find(control, volume_id))

    @classmethod
    async def destroy(cls, volume_id: str, **opts: Unpack[ApiParams]) -> bool:
        """Remove a volume with all that is in it. Returns False if there is none.

        Errors:
            VolumeException: a sandbox has it.
        """
        control = Control(find_target(opts))
        try:
            await _ask(control, "DELETE", _route(volume_id))
        except errors.VolumeNotFoundException:
            return False
        finally:
            await control.close()
        return True

    async def _own_info(self, path: str, **opts: Unpack[VolumeApiParams]) -> VolumeEntryStat:
        """What lies at a path; of a link, the link itself.

        Errors:
            VolumePathNotFoundException: nothing.
        """
        return parse_stat(await self._json("GET", "path", {"path": path}, opts))

    async def _own_list(
        self, path: str, depth: int | None = None, **opts: Unpack[VolumeApiParams]
    ) -> list[VolumeEntryStat]:
        """What lies in a directory.

        Args:
            path: of it.
            depth: how many layers; 1 if not given.
            opts: how to reach the server.

        Errors:
            VolumePathNotFoundException: there is none.
        """
        query = {"path": path} | ({} if depth is None else {"depth": str(depth)})
        return [
            parse_stat(each) for each in as_list(await self._json("GET", "dir", query, opts)) or ()
        ]

    get_info = Both(_get_info_by_id, _own_info)
    list = Both(_list_all, _own_list)

    async def make_dir(
        self,
        path: str,
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        force: bool | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Make a directory.

        Args:
            path: of it.
            uid, gid: who owns it; the owner of the directory above if not given.
            mode: its permissions.
            force: make those above it too, and be content if it is there.
            opts: how to reach the server.
        """
        query = {"path": path, **render_owner(uid, gid, mode, force)}
        return parse_stat(await self._json("POST", "dir", query, opts))

    async def exists(self, path: str, **opts: Unpack[VolumeApiParams]) -> bool:
        """Whether something lies at a path."""
        try:
            await self._own_info(path, **opts)
        except errors.VolumePathNotFoundException:
            return False
        return True

    async def update_metadata(
        self,
        path: str,
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Change who owns a file or directory, and its permissions."""
        wanted = {"uid": uid, "gid": gid, "mode": mode}
        body = json.dumps({key: value for key, value in wanted.items() if value is not None})
        return parse_stat(await self._json("PATCH", "path", {"path": path}, opts, body.encode()))

    @overload
    async def read_file(
        self,
        path: str,
        format: Literal["text"] = "text",
        stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> str: ...

    @overload
    async def read_file(
        self,
        path: str,
        format: Literal["bytes"],
        stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> bytes: ...

    @overload
    async def read_file(
        self,
        path: str,
        format: Literal["stream"],
        stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> AsyncIterator[bytes]: ...

    async def read_file(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> str | bytes | AsyncIterator[bytes]:
        """Read a file.

        Args:
            path: of it; links inside the volume are followed.
            format: ``text`` (UTF-8; other bytes become U+FFFD), ``bytes``, or ``stream`` for an
                iterator of bytes.
            stream_idle_timeout: seconds between two bytes of a stream.
            opts: how to reach the server.

        Errors:
            VolumePathNotFoundException: there is no such file.
        """
        limit_s = stream_idle_timeout or FILE_TIMEOUT_S
        reply = await self._open("GET", "file", {"path": path}, opts, limit_s=limit_s)
        if format == "stream":
            return self._chunks(reply)
        pieces = [chunk async for chunk in self._chunks(reply)]
        data = b"".join(pieces)
        return data if format == "bytes" else data.decode("utf-8", "replace")

    async def _chunks(self, reply: Reply) -> AsyncIterator[bytes]:
        try:
            while chunk := await reply.read():
                yield chunk
        except LinkError as error:
            raise errors.VolumeException(f"the answer broke off: {error.detail}") from error
        finally:
            await reply.close()

    async def write_file(
        self,
        path: str,
        data: AsyncWriteData,
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        force: bool | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Write a file; one that is there is replaced, in one step, when all has come.

        Args:
            path: of it.
            data: text, bytes, a file object, or an iterable of bytes; the last two are streamed.
            uid, gid: who owns a new file; the owner of the directory if not given.
            mode: permissions of a new file.
            force: make directories above it.
            opts: how to reach the server.

        Errors:
            VolumePathNotFoundException: the directory does not exist, and not ``force``.
            NotEnoughSpaceException: the host's disk is full.
        """
        query = {"path": path, **render_owner(uid, gid, mode, force)}
        reply = await self._open(
            "PUT", "file", query, opts, render_body(data), limit_s=FILE_TIMEOUT_S
        )
        return parse_stat(await self._read_json(reply))

    async def remove(self, path: str, **opts: Unpack[VolumeApiParams]) -> None:
        """Remove a file, or a directory with all below."""
        reply = await self._open("DELETE", "path", {"path": path}, opts)
        await reply.close()

    async def _json(
        self,
        method: str,
        tail: str,
        query: Mapping[str, str],
        opts: VolumeApiParams,
        body: Body = None,
    ) -> object:
        return await self._read_json(await self._open(method, tail, query, opts, body))

    async def _read_json(self, reply: Reply) -> object:
        try:
            body = await reply.read_all()
        except LinkError as error:
            raise errors.VolumeException(f"the answer broke off: {error.detail}") from error
        finally:
            await reply.close()
        return decode(Answer(reply.status, reply.headers, body))

    async def _open(
        self,
        method: str,
        tail: str,
        query: Mapping[str, str],
        opts: VolumeApiParams,
        body: Body = None,
        *,
        limit_s: float | None = None,
    ) -> Reply:
        """Ask for content with the volume's own token."""
        token = opts.get("token") or self._info.token
        headers = {**(opts.get("headers") or {}), "Authorization": f"Bearer {token}"}
        if body is not None:
            kind = "application/json" if method == "PATCH" else "application/octet-stream"
            headers["Content-Type"] = kind
        timeout_s = opts.get("request_timeout") or limit_s or self._control.target.request_timeout_s
        path = f"/volumecontent/{quote(self.volume_id, safe='')}/{tail}"
        ask = Ask(method, path, query, headers, timeout_s)
        http = await self._control.connect()
        try:
            reply = await http.open(ask, body)
        except LinkError as error:
            raise self._control.failure(error, ask) from error
        if reply.status < 300:
            return reply
        status = reply.status
        problem = as_object(await self._read_json(reply)) or {}
        raise errors.from_volume(status, problem)

    async def close(self) -> None:
        """Close the connections; the object can be used again."""
        await self._control.close()
