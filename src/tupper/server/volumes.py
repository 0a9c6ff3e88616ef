"""E2B's routes for volumes, and for what is in them.

The routes of the content take a volume's own token, not an API key, and have errors of their own
shape: ``code`` is a word there. Source: E2B wire notes, 6.1 and 6.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import AlreadyExists, InvalidArgument, TupperError, Unauthenticated
from tupper.core.kernel import in_thread
from tupper.core.log import problem
from tupper.core.volume import VolumeRecord
from tupper.engine.tree import Entry, Owner, Tree, read_chunks
from tupper.protocol.e2b import render_time, status_of
from tupper.server.auth import bearer_tokens
from tupper.server.http import (
    Handler,
    Owning,
    answer,
    caller_of,
    engine_of,
    guarded,
    nothing,
    param,
    plain_failure,
    read_body,
)

PREFIX = "/volumecontent/"
_CHUNK = 1024 * 1024
_WHOLE_MOST = 2**53


def routes() -> list[Route]:
    """The routes."""
    path, place, file = (f"{PREFIX}{{id}}/{name}" for name in ("path", "dir", "file"))
    return [
        Route("/volumes", guarded(_list), methods=["GET"]),
        Route("/volumes", guarded(_create), methods=["POST"]),
        Route("/volumes/{id}", guarded(_get), methods=["GET"]),
        Route("/volumes/{id}", guarded(_remove), methods=["DELETE"]),
        Route(path, _content(_stat), methods=["GET"]),
        Route(path, _content(_change), methods=["PATCH"]),
        Route(path, _content(_delete), methods=["DELETE"]),
        Route(place, _content(_entries), methods=["GET"]),
        Route(place, _content(_make), methods=["POST"]),
        Route(file, _content(_read), methods=["GET"]),
        Route(file, _content(_write), methods=["PUT"]),
    ]


# The volumes.


def _render(record: VolumeRecord) -> dict[str, object]:
    return {"volumeID": record.id, "name": record.name, "token": record.token}


async def _list(request: Request) -> Response:
    found = engine_of(request).volumes.list(caller_of(request))
    return answer([{"volumeID": record.id, "name": record.name} for record in found])


async def _create(request: Request) -> Response:
    body = await read_body(request)
    body.refuse_unknown(("name",))
    volumes = engine_of(request).volumes
    try:
        made = await volumes.create(body.text("name"), caller_of(request) or "")
    except AlreadyExists as error:  # as E2B says it
        return plain_failure(400, error.message, error.code)
    return answer(_render(made), 201)


async def _get(request: Request) -> Response:
    return answer(_render(engine_of(request).volumes.find(param(request), caller_of(request))))


async def _remove(request: Request) -> Response:
    engine = engine_of(request)
    await engine.remove_volume(engine.volumes.find(param(request), caller_of(request)).id)
    return nothing()


# What is in them.


def _content(handler: Callable[[Request, Tree], Awaitable[Response]]) -> Handler:
    async def guard(request: Request) -> Response:
        try:
            return await handler(request, _tree(request))
        except TupperError as error:
            status = status_of(error.code)
            refusal = answer({"code": error.code, "message": error.message}, status)
            if status == 401:
                refusal.headers["connection"] = "close"  # whatever body is on its way
            return refusal
        except ClientDisconnect:
            return answer({"code": "internal", "message": "the client went away"}, 400)
        except Exception as error:  # noqa: BLE001 - one of the four edges
            name = type(error).__name__
            problem("request.crashed", path=request.url.path, error=name, message=str(error))
            return answer({"code": "internal", "message": f"internal error: {name}"}, 500)

    return guard


def _tree(request: Request) -> Tree:
    """The files of the volume whose token came along."""
    volumes = engine_of(request).volumes
    record = volumes.by_id(param(request))
    given = bearer_tokens(request.scope["headers"])
    token = record.token if record is not None else ""
    good = len(given) == 1 and hmac.compare_digest(given[0].encode(), token.encode())
    if record is None or not good:
        raise Unauthenticated("the volume's token is missing or wrong")
    return volumes.tree(record)


def _stat_json(entry: Entry) -> dict[str, object]:
    out: dict[str, object] = {
        "name": entry.path.rpartition("/")[2],
        "type": entry.kind,
        "path": entry.path,
        "size": entry.size,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": render_time(entry.atime),
        "mtime": render_time(entry.mtime),
        "ctime": render_time(entry.ctime),
    }
    if entry.target:
        out["target"] = entry.target
    return out


def _path(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path:
        raise InvalidArgument("path is missing")
    return path


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise InvalidArgument(f"{name} must be a whole number, not {text[:80]!r}")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "")
    if text not in ("", "true", "false", "True", "False"):
        raise InvalidArgument(f"{name} must be true or false, not {text[:80]!r}")
    return text.lower() == "true"


def _owner(request: Request) -> Owner:
    return Owner(*(_number(request, name) for name in ("uid", "gid", "mode")))


async def _stat(request: Request, tree: Tree) -> Response:
    return answer(_stat_json(await asyncio.to_thread(tree.stat, _path(request))))


async def _change(request: Request, tree: Tree) -> Response:
    body = await read_body(request)
    body.refuse_unknown(("uid", "gid", "mode"))
    owner = Owner(*(body.whole(name) for name in ("uid", "gid", "mode")))
    return answer(_stat_json(await asyncio.to_thread(tree.change, _path(request), owner)))


async def _delete(request: Request, tree: Tree) -> Response:
    await asyncio.to_thread(tree.remove, _path(request))
    return nothing()


async def _entries(request: Request, tree: Tree) -> Response:
    depth = _number(request, "depth")
    path = request.query_params.get("path", "/")
    found = await asyncio.to_thread(tree.list, path, 1 if depth is None else depth)
    return answer([_stat_json(entry) for entry in found])


async def _make(request: Request, tree: Tree) -> Response:
    owner, force = _owner(request), _flag(request, "force")
    path = _path(request)
    entry = await asyncio.to_thread(lambda: tree.make_directory(path, owner, force=force))
    return answer(_stat_json(entry), 201)


async def _read(request: Request, tree: Tree) -> Response:
    path = _path(request)
    async with contextlib.AsyncExitStack() as stack:
        fd, size = await in_thread(
            lambda: tree.open_file(path), name="volume", drop=lambda opened: os.close(opened[0])
        )
        stack.callback(os.close, fd)
        headers = {"Content-Length": str(size), "X-Content-Type-Options": "nosniff"}
        rest = stack.pop_all()
    return Owning(_chunks(fd, size), rest, headers, "application/octet-stream")


async def _chunks(fd: int, size: int) -> AsyncIterator[bytes]:
    chunks = read_chunks(fd, size)
    # A thread that is waited for: who closes the descriptor next may not close it under a read.
    while chunk := await in_thread(lambda: next(chunks, b""), name="volume"):
        yield chunk


async def _write(request: Request, tree: Tree) -> Response:
    owner, force, path = _owner(request), _flag(request, "force"), _path(request)
    async with contextlib.AsyncExitStack() as stack:
        writing = tree.writing(path, owner, force=force)
        upload = await asyncio.to_thread(writing.__enter__)
        stack.push(writing)
        engine, kept = engine_of(request), bytearray()
        engine.check_free_disk()
        async for chunk in request.stream():
            kept += chunk
            if len(kept) >= _CHUNK:
                engine.check_free_disk()
                await asyncio.to_thread(upload.write, bytes(kept))
                kept.clear()
        await asyncio.to_thread(upload.write, bytes(kept))
        entry = await asyncio.to_thread(upload.finish)
    return answer(_stat_json(entry), 201)
