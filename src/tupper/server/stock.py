"""Our routes for images and templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import InvalidArgument, PermissionDenied
from tupper.protocol.naming import check_name
from tupper.protocol.reference import names_host_files
from tupper.server.http import (
    Emit,
    answer,
    caller_of,
    engine_of,
    guarded,
    is_local,
    nothing,
    param,
    read_body,
    stream_lines,
)
from tupper.server.own import PREFIX, require_local

if TYPE_CHECKING:
    from tupper.images import ImageInfo, ProgressEvent


def routes() -> list[Route]:
    """The routes."""
    return [
        Route(f"{PREFIX}/images", guarded(_list), methods=["GET"]),
        Route(f"{PREFIX}/images/pull", guarded(_pull), methods=["POST"]),
        Route(f"{PREFIX}/images/prune", guarded(_prune), methods=["POST"]),
        Route(f"{PREFIX}/images/{{reference:path}}", guarded(_remove), methods=["DELETE"]),
        Route(f"{PREFIX}/templates", guarded(_templates), methods=["GET"]),
        Route(f"{PREFIX}/templates", guarded(_build), methods=["POST"]),
        Route(f"{PREFIX}/templates/{{name:path}}", guarded(_remove_template), methods=["DELETE"]),
    ]


async def _list(request: Request) -> Response:
    engine = engine_of(request)
    used = engine.images_in_use()
    return answer([_image(info, used) for info in await engine.images.list()])


def _image(info: ImageInfo, used: set[str]) -> dict[str, object]:
    return {
        "digest": info.digest,
        "references": list(info.references),
        "sizeBytes": info.size_bytes,
        "createdAt": info.created_at,
        "lastUsed": info.last_used,
        "inUse": info.digest in used,
    }


async def _pull(request: Request) -> Response:
    engine, body = engine_of(request), await read_body(request)
    reference = body.text("reference")
    if not reference:
        raise InvalidArgument("reference is missing")
    if names_host_files(reference):
        require_local(request, "a pull from a file of the host")

    async def work(emit: Emit) -> Mapping[str, object]:
        rootfs = await engine.images.ensure(reference, progress=lambda e: emit(_progress(e)))
        infos = [i for i in await engine.images.list() if i.digest == rootfs.digest]
        image = _image(infos[0], engine.images_in_use()) if infos else {"digest": rootfs.digest}
        return {"event": "done", "image": image}

    return stream_lines(work)


def _progress(event: ProgressEvent) -> dict[str, object]:
    out: dict[str, object] = {"event": "progress", "message": event.message}
    if event.done_bytes is not None:
        out["doneBytes"] = event.done_bytes
    if event.total_bytes is not None:
        out["totalBytes"] = event.total_bytes
    return out


async def _prune(request: Request) -> Response:
    pruned = await engine_of(request).prune_images()
    return answer({"removed": list(pruned.removed), "freedBytes": pruned.freed_bytes})


async def _remove(request: Request) -> Response:
    await engine_of(request).remove_image(param(request, "reference"))
    return nothing()


async def _templates(request: Request) -> Response:
    infos = await engine_of(request).templates.list()
    return answer(
        [
            {
                "name": info.name,
                "digest": info.digest,
                "builtAt": info.built_at,
                "sizeBytes": info.size_bytes,
                "description": info.description,
                "isCurrent": info.is_current,
                "tags": [tag.tag for tag in info.tags],
            }
            for info in infos
            if engine_of(request).builds.may_use(info.name, caller_of(request) or "")
        ]
    )


async def _build(request: Request) -> Response:
    engine, body = engine_of(request), await read_body(request)
    name, dockerfile = body.text("name"), body.text("dockerfile")
    context, arguments = body.text("contextPath"), body.text_map("buildArgs")
    force = body.flag("force") is True
    if not name:
        raise InvalidArgument("name is missing")
    if context:
        require_local(request, "a build with a directory of the host")
    check_name(name)

    async def work(emit: Emit) -> Mapping[str, object]:
        def progress(event: ProgressEvent) -> None:
            emit(_progress(event))

        if not dockerfile:
            rootfs = await engine.templates.ensure(name, progress=progress, force=force)
        else:
            from tupper.engine.build import Recipe  # noqa: PLC0415 - rarely needed

            place = Path(context) if context else None
            local = is_local(request)
            recipe = Recipe(name, dockerfile, place, arguments, force, host_images=local)
            key = caller_of(request) or ""
            rootfs = await engine.builds.build_dockerfile(recipe, emit, owner_key=key)
        return {"event": "done", "template": {"name": name, "digest": rootfs.digest}}

    return stream_lines(work)


async def _remove_template(request: Request) -> Response:
    builds, name = engine_of(request).builds, check_name(param(request, "name"))
    if not (builds.may_change(name, caller_of(request) or "")):
        raise PermissionDenied(f"template {name} is not yours")
    await builds.remove(name)
    return nothing()
