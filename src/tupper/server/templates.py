"""E2B's routes for templates.

An archive for COPY is uploaded to a URL that carries its own permission, for E2B's clients send no
key with it: a signature over the template, the hash and an end, by a secret of this process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tupper.core.errors import (
    InvalidArgument,
    PermissionDenied,
    TemplateNotFound,
    Unauthenticated,
    Unsupported,
)
from tupper.core.sandbox import CreateRequest
from tupper.engine import Engine
from tupper.engine.builds import Build
from tupper.engine.request import decide_limits
from tupper.protocol import e2b
from tupper.protocol.building import STATUS_PAGE, BuildStatus, LogLine, parse_plan, render_log
from tupper.protocol.naming import DEFAULT_TAG, check_tag, parse_template
from tupper.protocol.unsupported import NotYet
from tupper.server.http import (
    answer,
    caller_of,
    engine_of,
    guarded,
    is_local,
    nothing,
    param,
    read_body,
)
from tupper.server.lifecycle import delete_snapshot

if TYPE_CHECKING:
    from tupper.images import TemplateInfo

UPLOADS = "/tupper/v1/uploads/"
_UPLOAD_S = 24 * 3600
_LEVELS = ("debug", "info", "warn", "error")
_LOGS_MAX = 1000


def routes() -> list[Route]:
    """The routes."""
    build = "/templates/{id}/builds/{build}"
    return [
        Route("/v3/templates", guarded(_request), methods=["POST"]),
        Route("/templates/{id}/files/{hash}", guarded(_files), methods=["GET"]),
        Route(f"{UPLOADS}{{id}}/{{hash}}", guarded(_upload), methods=["PUT"]),
        Route(f"/v2{build}", guarded(_start), methods=["POST"]),
        Route(f"{build}/status", guarded(_status), methods=["GET"]),
        Route(f"{build}/logs", guarded(_logs), methods=["GET"]),
        Route("/templates/aliases/{alias}", guarded(_alias), methods=["GET"]),
        Route("/templates/tags", guarded(_assign_tags), methods=["POST"]),
        Route("/templates/tags", guarded(_remove_tags), methods=["DELETE"]),
        Route("/templates/{id}/tags", guarded(_tags), methods=["GET"]),
        Route("/templates", guarded(_list), methods=["GET"]),
        Route("/v2/templates", guarded(_list), methods=["GET"]),
        Route("/templates/{id}", guarded(_get), methods=["GET"]),
        Route("/templates/{id}", guarded(_delete), methods=["DELETE"]),
        Route("/v2/templates/{id}", guarded(_change), methods=["PATCH"]),
        *(
            Route(path, guarded(_old), methods=["POST", "PATCH"])
            for path in ("/templates", "/v2/templates", "/templates/{id}", build)
        ),
    ]


async def _old(request: Request) -> Response:
    """Builds as E2B's clients of before 2.0 ask for them, with Docker on their own machine."""
    raise NotYet(
        f"this tupper does not support {request.method} {request.url.path}",
        hint="build with a newer SDK",
    )


# Building.


async def _request(request: Request) -> Response:
    engine, body = engine_of(request), await read_body(request)
    name, tag = parse_template(body.text("name"))
    tags = {check_tag(text.lower()) for text in body.texts("tags")}
    if ":" in body.text("name"):
        tags.add(check_tag(tag))
    cpus, memory_mib = body.number("cpuCount"), body.whole("memoryMB")
    decide_limits(CreateRequest(cpus=cpus, memory_mib=memory_mib), engine.settings)
    build = engine.builds.request(
        name,
        sorted(tags) or [DEFAULT_TAG],
        cpus=cpus or 0.0,
        memory_mib=memory_mib or 0,
        owner_key=caller_of(request) or "",
    )
    return answer(
        {
            "templateID": name,
            "buildID": build.id,
            "public": False,
            "names": [name],
            "aliases": [name],
            "tags": list(build.tags),
        },
        202,
    )


def _template(request: Request) -> str:
    """The name in the path, of a template that the caller may change.

    Raises:
        TemplateNotFound: nothing can have that name, or it is somebody else's.
    """
    return _changeable(request, _look_up(param(request))[0])


def _changeable(request: Request, name: str) -> str:
    if not engine_of(request).builds.may_change(name, caller_of(request) or ""):
        raise TemplateNotFound(f"there is no template {name} of yours")
    return name


def _usable(request: Request) -> str:
    """The name in the path, of a template that the caller may use."""
    name, _ = _look_up(param(request))
    if not engine_of(request).builds.may_use(name, caller_of(request) or ""):
        raise TemplateNotFound(f"there is no template {name}")
    return name


def _look_up(text: str) -> tuple[str, str]:
    try:
        return parse_template(text)
    except InvalidArgument as error:
        raise TemplateNotFound(error.message) from error


async def _files(request: Request) -> Response:
    name, files_hash = _template(request), param(request, "hash")
    present = engine_of(request).builds.has_files(name, files_hash)
    until = str(int(time.time()) + _UPLOAD_S)
    query = urlencode(
        {"until": until, "signature": uploads_of(request).sign(name, files_hash, until)}
    )
    path = f"{UPLOADS}{quote(name, safe='')}/{files_hash}"
    return answer({"present": present, "url": f"{_origin(request)}{path}?{query}"}, 201)


def _origin(request: Request) -> str:
    """Where the client found us, for it shall come to the same place again."""
    return f"{request.url.scheme}://{request.headers.get('host', 'localhost')}"


@dataclass(frozen=True, slots=True)
class Uploads:
    """Permissions to upload."""

    secret: bytes

    @classmethod
    def new(cls) -> Uploads:
        """With a secret of its own."""
        return cls(secrets.token_bytes(32))

    def sign(self, name: str, files_hash: str, until: str) -> str:
        """The signature of a URL."""
        text = f"{name}\n{files_hash}\n{until}"
        return hmac.new(self.secret, text.encode(), hashlib.sha256).hexdigest()

    def allows(self, name: str, files_hash: str, until: str, signature: str) -> bool:
        """Whether a URL is one of ours, and its time is not over."""
        if not (until.isascii() and until.isdigit() and len(until) < 12):
            return False
        wanted = self.sign(name, files_hash, until)
        is_ours = hmac.compare_digest(wanted.encode(), signature.encode())
        return is_ours and time.time() < int(until)


def uploads_of(request: Request) -> Uploads:
    """The permissions of this process."""
    uploads = request.app.state.uploads
    if not isinstance(uploads, Uploads):
        raise TypeError("the app has no uploads")
    return uploads


async def _upload(request: Request) -> Response:
    name, files_hash = _look_up(param(request))[0], param(request, "hash")
    query = request.query_params
    if not uploads_of(request).allows(
        name, files_hash, query.get("until", ""), query.get("signature", "")
    ):
        raise Unauthenticated("this link is no permission to upload, or its time is over")
    await engine_of(request).builds.take_files(name, files_hash, request.stream())
    return nothing()


async def _start(request: Request) -> Response:
    builds = engine_of(request).builds
    build = builds.find(_template(request), param(request, "build"))
    plan = parse_plan(await read_body(request))
    builds.start(build, plan, host_images=is_local(request), owner_key=caller_of(request) or "")
    return Response(status_code=202)


async def _status(request: Request) -> Response:
    builds = engine_of(request).builds
    name, build_id = _template(request), param(request, "build")
    offset = _count(request, "logsOffset", 0, 10**9)
    limit = _count(request, "limit", STATUS_PAGE, STATUS_PAGE)
    level = request.query_params.get("level", "")
    build = builds.find(name, build_id)
    lines = builds.log(build, offset, limit)
    body: dict[str, object] = {
        "templateID": name,
        "buildID": build.id,
        "status": str(build.status),
        "logs": [],
        "logEntries": _entries(lines, level),
    }
    if build.status is BuildStatus.ERROR:
        failure: dict[str, object] = {"message": build.reason, "logEntries": []}
        if build.step:
            failure["step"] = build.step
        body["reason"] = failure
    return answer(body)


async def _logs(request: Request) -> Response:
    """The log by time; E2B's CLI pages through it."""
    builds, query = engine_of(request).builds, request.query_params
    build = builds.find(_template(request), param(request, "build"))
    lines = builds.log(build, 0, 10**9)
    cursor = _count(request, "cursor", -1, 2**53)
    forward = query.get("direction", "forward") != "backward"
    if not forward:
        lines = lines[::-1]
    if cursor >= 0:
        at = cursor / 1000
        lines = [line for line in lines if (line.at >= at if forward else line.at <= at)]
    limit = _count(request, "limit", STATUS_PAGE, _LOGS_MAX)
    return answer({"logs": _entries(lines, query.get("level", ""))[:limit]})


def _entries(lines: Sequence[LogLine], level: str) -> list[dict[str, object]]:
    least = _LEVELS.index(level) if level in _LEVELS else 0
    return [
        render_log(line, e2b.render_time(line.at))
        for line in lines
        if line.level not in _LEVELS or _LEVELS.index(line.level) >= least
    ]


def _count(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise InvalidArgument(f"{name} must be a whole number, not {text[:100]!r}")
    return min(int(text), most)


# Names and tags.


async def _alias(request: Request) -> Response:
    name, tag = _look_up(param(request, "alias"))
    if not engine_of(request).builds.may_use(name, caller_of(request) or ""):
        raise PermissionDenied(f"template {name} belongs to somebody else")
    _digest(engine_of(request), name, tag)
    return answer({"templateID": name, "public": False})


def _digest(engine: Engine, name: str, tag: str) -> str:
    """What a name and tag stand for.

    Raises:
        TemplateNotFound: nothing.
    """
    info = engine.templates.info(name)
    if info.is_recipe and tag == DEFAULT_TAG:
        return info.digest
    for found in info.tags:
        if found.tag == tag:
            return found.digest
    raise TemplateNotFound(f"template {name} has no tag {tag}")


async def _tags(request: Request) -> Response:
    info = engine_of(request).templates.info(_usable(request))
    return answer(
        [
            {
                "tag": tag.tag,
                "buildID": tag.build_id,
                "createdAt": e2b.render_time(tag.created_at or info.built_at),
            }
            for tag in info.tags
        ]
    )


async def _assign_tags(request: Request) -> Response:
    templates, body = engine_of(request).templates, await read_body(request)
    name, tag = parse_template(body.text("target"))
    _changeable(request, name)
    tags = [check_tag(text.lower()) for text in body.texts("tags")]
    if not tags:
        raise InvalidArgument("tags is missing")
    source = next((found for found in templates.info(name).tags if found.tag == tag), None)
    if source is None:
        raise TemplateNotFound(f"template {name} has no tag {tag}")
    rootfs = await templates.ensure(f"{name}:{tag}")
    for each in tags:
        await templates.register(name, rootfs, tag=each, build_id=source.build_id)
    return answer({"tags": tags, "buildID": source.build_id}, 201)


async def _remove_tags(request: Request) -> Response:
    templates, body = engine_of(request).templates, await read_body(request)
    name = _changeable(request, parse_template(body.text("name"))[0])
    tags = [check_tag(text.lower()) for text in body.texts("tags")]
    if DEFAULT_TAG in tags:
        raise InvalidArgument(f"the tag {DEFAULT_TAG} cannot be removed")
    templates.info(name)
    for tag in tags:
        templates.untag(name, tag)
    return nothing()


# Looking.


async def _list(request: Request) -> Response:
    engine = engine_of(request)
    caller = caller_of(request) or ""
    infos = await engine.templates.list()
    return answer([_render(engine, i) for i in infos if engine.builds.may_use(i.name, caller)])


async def _get(request: Request) -> Response:
    engine = engine_of(request)
    info = engine.templates.info(_usable(request))
    builds = [_render_build(engine, build) for build in engine.builds.all_of(info.name)]
    return answer(_render(engine, info) | {"builds": builds})


def _render(engine: Engine, info: TemplateInfo) -> dict[str, object]:
    builds = engine.builds.all_of(info.name)
    at = e2b.render_time(info.built_at)
    build_id = info.tags[0].build_id if info.tags else str(uuid.UUID(int=0))
    cpus = builds[0].cpus if builds else 0.0
    memory_mib = builds[0].memory_mib if builds else 0
    return {
        "templateID": info.name,
        "buildID": build_id,
        "cpuCount": max(1, round(cpus or engine.settings.cpus)),
        "memoryMB": memory_mib or engine.settings.memory_mib,
        "diskSizeMB": engine.settings.disk_mib,
        "public": False,
        "aliases": [info.name],
        "names": [info.name],
        "createdAt": e2b.render_time(builds[-1].created_at) if builds else at,
        "updatedAt": at,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": len(builds) or len(info.tags),
        "envdVersion": e2b.ENVD_VERSION,
        "buildStatus": "ready" if info.digest else "waiting",
        "description": info.description,
    }


def _render_build(engine: Engine, build: Build) -> dict[str, object]:
    out: dict[str, object] = {
        "buildID": build.id,
        "status": str(build.status),
        "createdAt": e2b.render_time(build.created_at),
        "updatedAt": e2b.render_time(build.finished_at or build.created_at),
        "cpuCount": max(1, round(build.cpus or engine.settings.cpus)),
        "memoryMB": build.memory_mib or engine.settings.memory_mib,
        "diskSizeMB": engine.settings.disk_mib,
        "envdVersion": e2b.ENVD_VERSION,
    }
    if build.finished_at:
        out["finishedAt"] = e2b.render_time(build.finished_at)
    return out


async def _delete(request: Request) -> Response:
    if await delete_snapshot(request):
        return nothing()
    engine, name = engine_of(request), _look_up(param(request))[0]
    if engine.templates.is_recipe(name):
        raise PermissionDenied(f"template {name} comes with tupper and cannot be removed")
    _changeable(request, name)
    await engine.builds.remove(name)
    return nothing()


async def _change(request: Request) -> Response:
    body = await read_body(request)
    info = engine_of(request).templates.info(_template(request))
    if body.flag("public"):
        raise Unsupported("this tupper", "public templates", "there is nobody to show them to")
    return answer({"names": [info.name]})
