"""E2B's routes for templates, as its builder drives them."""

from __future__ import annotations

from tupper.server.openapi.operation import NOTHING, Operation, Query, Reply
from tupper.server.openapi.shapes import TEXT, Schema, ref, several

_BUILD = "/templates/{id}/builds/{build}"
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 10**9}
_LEVEL = Query("level", {"enum": ["debug", "info", "warn", "error"]}, "at least as grave")
_GROUP = "Templates, as E2B's builder asks"

TEMPLATE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post", "/v3/templates", _GROUP, "Ask for a build of a template.",
        {202: Reply(ref("BuildRequested"))}, ("BuildRequest",),
    ),
    Operation(
        "get", "/templates/{id}/files/{hash}", _GROUP,
        "Whether files of the build's context are here, and where to send them.",
        {201: Reply(ref("FilesLink"))},
    ),
    Operation(
        "put", "/tupper/v1/uploads/{id}/{hash}", _GROUP,
        "Send files of the build's context, as a tar archive; the address is a permission.",
        NOTHING, bytes_in=True, is_open=True,
        query=(Query("until", TEXT), Query("signature", TEXT)),
    ),
    Operation(
        "post", f"/v2{_BUILD}", _GROUP, "Begin the build.", {202: Reply()}, ("BuildPlan",)
    ),
    Operation(
        "get", f"{_BUILD}/status", _GROUP, "How the build goes, with its log.",
        {200: Reply(ref("BuildStatus"))},
        query=(Query("logsOffset", _COUNT), Query("limit", _COUNT), _LEVEL),
    ),
    Operation(
        "get", f"{_BUILD}/logs", _GROUP, "The build's log by time.",
        {200: Reply(ref("BuildLogs"))},
        query=(
            Query("cursor", _COUNT, "unix ms"),
            Query("limit", _COUNT),
            Query("direction", {"enum": ["forward", "backward"]}),
            _LEVEL,
        ),
    ),
    Operation(
        "get", "/templates/aliases/{alias}", _GROUP, "Whether a template has this name.",
        {200: Reply(ref("Alias"))},
    ),
    Operation(
        "get", "/templates/{id}/tags", _GROUP, "A template's tags.",
        {200: Reply(several(ref("Tag")))},
    ),
    Operation(
        "post", "/templates/tags", _GROUP, "Give a build more tags.",
        {201: Reply({"type": "object"})}, ("TagsWanted",),
    ),
    Operation(
        "delete", "/templates/tags", _GROUP, "Take tags away.", NOTHING, ("TagsUnwanted",)
    ),
    Operation(
        "get", "/templates", _GROUP, "The templates.", {200: Reply(several({"type": "object"}))}
    ),
    Operation(
        "get", "/v2/templates", _GROUP, "The templates.", {200: Reply(several({"type": "object"}))}
    ),
    Operation(
        "get", "/templates/{id}", _GROUP, "One template.", {200: Reply({"type": "object"})}
    ),
    Operation("delete", "/templates/{id}", _GROUP, "Remove a template.", NOTHING),
    Operation(
        "patch", "/v2/templates/{id}", _GROUP, "Change a template.",
        {200: Reply({"type": "object"})}, ("TemplateChange",),
    ),
)  # fmt: skip
