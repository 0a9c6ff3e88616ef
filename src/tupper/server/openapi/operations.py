"""What can be asked of the API: one line an operation. A test holds it to the table of routes."""

from __future__ import annotations

from tupper.server.openapi.operation import (
    BYTES,
    EVENTS,
    LINES,
    NOTHING,
    Operation,
    Query,
    Reply,
)
from tupper.server.openapi.shapes import OWNER, TEXT, Schema, ref, several
from tupper.server.openapi.template_operations import TEMPLATE_OPERATIONS

_LIST = {200: Reply(several(ref("SandboxDetail")))}
_FILE = (
    Query("path", {**TEXT, "minLength": 1}, "of the file inside", is_required=True),
    Query("user", TEXT, "whose home a relative path begins in, and who owns a new file"),
)
_METADATA = Query("metadata", TEXT, "key=value pairs, percent-encoded, joined with &")
_LIMIT: Schema = {"type": "integer", "minimum": 0, "maximum": 1000}
_LEVEL: Schema = {"enum": ["debug", "info", "warn", "error"]}
_DIRECTION: Schema = {"enum": ["forward", "backward"]}
_LOG_QUERY = (
    Query("limit", _LIMIT),
    Query("direction", _DIRECTION),
    Query("level", _LEVEL, "at least as grave"),
    Query("search", TEXT, "contained in the line"),
)
_UNIX: Schema = {"type": "integer", "minimum": 0, "maximum": 10**14}
_IN_VOLUME = Query("path", {**TEXT, "minLength": 1}, "in the volume", is_required=True)
_OWNER = (
    *(Query(name, schema, "of what is made") for name, schema in OWNER),
    Query("force", {"enum": ["true", "false"]}, "make directories above it"),
)
_STREAM = {200: Reply({"type": "string"}, LINES)}
_OWN = "/tupper/v1"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "get", "/health", "Server", "Whether the server answers.",
        {200: Reply(ref("Health"))}, is_open=True,
    ),
    Operation(
        "get", "/openapi.json", "Server", "This description.",
        {200: Reply({"type": "object"})}, is_open=True,
    ),
    Operation(
        "get", "/docs", "Server", "This description, to be read.",
        {200: Reply(TEXT, "text/html")}, is_open=True,
    ),
    Operation(
        "post", "/sandboxes", "Sandboxes",
        "Make a sandbox. The answer comes when it takes commands. In E2B's body, `timeout` is 15 "
        "seconds if not given.",
        {201: Reply(ref("Sandbox"))}, ("PlainSandbox", "NewSandbox"),
    ),
    Operation(
        "post", "/v2/sandboxes", "Sandboxes",
        "The same, as newer clients of E2B ask; `timeout` is 300 seconds if not given.",
        {201: Reply(ref("Sandbox"))}, ("PlainSandbox", "NewSandbox"),
    ),
    Operation(
        "get", "/sandboxes", "Sandboxes", "All running sandboxes.", _LIST, query=(_METADATA,)
    ),
    Operation(
        "get", "/v2/sandboxes", "Sandboxes",
        "Sandboxes page by page; the header X-Next-Token leads to the next.", _LIST,
        query=(
            _METADATA,
            Query("state", TEXT, "`running`, `paused`, `ended`, joined with commas"),
            Query("template", TEXT, "made from this template or image"),
            Query("startedAfter", {"type": "string", "format": "date-time"}, "at or after"),
            Query("order", {"enum": ["asc", "desc"]}, "by start; newest first if not given"),
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("nextToken", TEXT, "of the page before"),
        ),
    ),
    Operation(
        "get", "/sandboxes/{id}", "Sandboxes", "One sandbox, by id, name or a unique beginning.",
        {200: Reply(ref("SandboxDetail"))},
        query=(Query("ended", {"enum": ["true", "false"]}, "also one that ended within a day"),),
    ),
    Operation(
        "delete", "/sandboxes/{id}", "Sandboxes", "End it, with all that is in it.", NOTHING
    ),
    Operation(
        "post", "/sandboxes/{id}/timeout", "Sandboxes", "It ends this many seconds from now.",
        NOTHING, ("Timeout",),
    ),
    Operation(
        "post", "/sandboxes/{id}/refreshes", "Sandboxes", "It lives at least this much longer.",
        NOTHING, ("Refresh",),
    ),
    Operation(
        "post", "/sandboxes/{id}/connect", "Sandboxes",
        "How to reach it; its end may move back, never forward. `timeout` is needed. A paused one "
        "is resumed, which is 201.",
        {200: Reply(ref("Sandbox")), 201: Reply(ref("Sandbox"))}, ("Connect",),
    ),
    Operation(
        "post", "/v2/sandboxes/{id}/connect", "Sandboxes",
        "The same; `timeout` is 300 seconds if not given.",
        {200: Reply(ref("Sandbox")), 201: Reply(ref("Sandbox"))}, ("Connect",),
    ),
    Operation(
        "post", "/sandboxes/{id}/pause", "Pauses, snapshots, forks",
        "Lay it on disk; 409 if it is paused already.", NOTHING, ("Pause",),
    ),
    Operation(
        "post", "/sandboxes/{id}/resume", "Pauses, snapshots, forks",
        "Let a paused one go on; 409 if it runs. `connect` does so too.",
        {201: Reply(ref("Sandbox"))}, ("Resume",),
    ),
    Operation(
        "post", "/sandboxes/{id}/fork", "Pauses, snapshots, forks",
        "Start copies of a running one; for each a sandbox or an error.",
        {201: Reply(several(ref("Fork")))}, ("NewForks",),
    ),
    Operation(
        "post", "/sandboxes/{id}/snapshots", "Pauses, snapshots, forks",
        "Save a running one, which goes on; sandboxes start from it as from a template.",
        {201: Reply(ref("Snapshot"))}, ("NewSnapshot",),
    ),
    Operation(
        "get", "/snapshots", "Pauses, snapshots, forks",
        "Snapshots page by page. `DELETE /templates/{id}` removes one.",
        {200: Reply(several(ref("Snapshot")))},
        query=(
            Query("sandboxID", TEXT, "made from this sandbox"),
            Query("name", TEXT, "id or name, perhaps with `:tag`"),
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("nextToken", TEXT, "of the page before"),
        ),
    ),
    Operation(
        "put", "/sandboxes/{id}/network", "Sandboxes",
        "Replace what it may reach; what is left out is not restricted.",
        NOTHING, ("NetworkChange",),
    ),
    Operation(
        "post", f"{_OWN}/sandboxes/{{id}}/idle-timeout", "Sandboxes",
        "It ends after this long without activity.", NOTHING, ("Idle",),
    ),
    Operation(
        "post", f"{_OWN}/sandboxes/{{id}}/ports", "Sandboxes",
        "Publish a port on this machine's loopback. Only on the unix socket.",
        {200: Reply(ref("Address"))}, ("Publish",),
    ),
    Operation(
        "get", f"{_OWN}/events", "Looking",
        "What happens to sandboxes from now on, as server-sent events that do not end by "
        "themselves: `created`, `paused`, `resumed`, `ended`; `lost` where some are missing. "
        "`Last-Event-ID` goes on where an earlier stream broke.",
        {200: Reply(TEXT, EVENTS)},
        query=(
            Query("sandbox", TEXT, "only of this one"),
            _METADATA,
            Query("type", TEXT, "only these, joined with commas"),
        ),
    ),
    Operation(
        "post", "/sandboxes/{id}/commands", "Commands and files",
        "Run a command; the whole result, or server-sent events where they are accepted.",
        {200: Reply(ref("Result"), also=EVENTS), 202: Reply(ref("Begun"))}, ("Command",),
    ),
    Operation(
        "get", "/sandboxes/{id}/files", "Commands and files", "A file's bytes.",
        {200: Reply(TEXT, "*/*")}, query=_FILE,
    ),
    Operation(
        "put", "/sandboxes/{id}/files", "Commands and files",
        "Write a file; directories in between are made.",
        {200: Reply(ref("Written"))}, bytes_in=True, query=_FILE,
    ),
    Operation(
        "get", "/sandboxes/{id}/metrics", "Looking", "What it used, over time.",
        {200: Reply(several(ref("Metric")))},
        query=(Query("start", _UNIX, "unix seconds"), Query("end", _UNIX, "unix seconds")),
    ),
    Operation(
        "get", "/sandboxes/metrics", "Looking", "The latest of up to 100 sandboxes.",
        {200: Reply(ref("Metrics"))},
        query=(
            Query("sandbox_ids", {**TEXT, "minLength": 1}, "joined with commas", is_required=True),
        ),
    ),
    Operation(
        "get", "/sandboxes/{id}/logs", "Looking", "What its agent and its machine said.",
        {200: Reply(ref("LogsV1"))}, query=(Query("start", _UNIX, "unix ms"), *_LOG_QUERY),
    ),
    Operation(
        "get", "/v2/sandboxes/{id}/logs", "Looking", "The same, page by page.",
        {200: Reply(ref("Logs"))}, query=(Query("cursor", _UNIX, "unix ms"), *_LOG_QUERY),
    ),
    Operation(
        "get", f"{_OWN}/sandboxes/{{id}}/log", "Looking", "The same as text, also of ended ones.",
        {200: Reply(TEXT, "text/plain")},
    ),
    Operation(
        "get", "/secrets", "Secrets",
        "The secrets, page by page, never with a value. Nothing uses them yet: `network.rules` "
        "is a 501.",
        {200: Reply(several(ref("Secret")))},
        query=(
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("nextToken", TEXT, "of the page before"),
        ),
    ),
    Operation(
        "post", "/secrets", "Secrets", "Keep a value.", {201: Reply(ref("Secret"))},
        ("NewSecret",),
    ),
    Operation(
        "get", "/secrets/{id}", "Secrets", "One secret, by id or name, without its value.",
        {200: Reply(ref("Secret"))},
    ),
    Operation(
        "post", "/secrets/{id}", "Secrets", "Give it another value.",
        {200: Reply(ref("Secret"))}, ("SecretChange",),
    ),
    Operation("delete", "/secrets/{id}", "Secrets", "Forget it.", NOTHING),
    Operation(
        "get", "/volumes", "Volumes", "All volumes.", {200: Reply(several(ref("Volume")))}
    ),
    Operation(
        "post", "/volumes", "Volumes", "Make an empty volume.",
        {201: Reply(ref("VolumeAndToken"))}, ("NewVolume",),
    ),
    Operation(
        "get", "/volumes/{id}", "Volumes", "One volume, by id or name.",
        {200: Reply(ref("VolumeAndToken"))},
    ),
    Operation(
        "delete", "/volumes/{id}", "Volumes",
        "Remove it with all that is in it, unless a sandbox has it.", NOTHING,
    ),
    Operation(
        "get", "/volumecontent/{id}/path", "Volumes", "What lies at a path.",
        {200: Reply(ref("Stat"))}, query=(_IN_VOLUME,), has_token=True,
    ),
    Operation(
        "patch", "/volumecontent/{id}/path", "Volumes", "Change owner and permissions.",
        {200: Reply(ref("Stat"))}, ("StatChange",), query=(_IN_VOLUME,), has_token=True,
    ),
    Operation(
        "delete", "/volumecontent/{id}/path", "Volumes",
        "Remove a file, or a directory with all below.", NOTHING, query=(_IN_VOLUME,),
        has_token=True,
    ),
    Operation(
        "get", "/volumecontent/{id}/dir", "Volumes", "What lies in a directory.",
        {200: Reply(several(ref("Stat")))}, has_token=True,
        query=(
            Query("path", TEXT, "`/` if not given"),
            Query("depth", {"type": "integer", "minimum": 0, "maximum": 64}, "layers"),
        ),
    ),
    Operation(
        "post", "/volumecontent/{id}/dir", "Volumes", "Make a directory.",
        {201: Reply(ref("Stat"))}, query=(_IN_VOLUME, *_OWNER), has_token=True,
    ),
    Operation(
        "get", "/volumecontent/{id}/file", "Volumes", "A file's bytes.",
        {200: Reply(TEXT, BYTES)}, query=(_IN_VOLUME,), has_token=True,
    ),
    Operation(
        "put", "/volumecontent/{id}/file", "Volumes",
        "Write a file; one that is there is replaced in one step.",
        {201: Reply(ref("Stat"))}, bytes_in=True, query=(_IN_VOLUME, *_OWNER), has_token=True,
    ),
    Operation("get", f"{_OWN}/images", "Images and templates", "The images in the store.",
        {200: Reply(several(ref("Image")))},
    ),
    Operation("post", f"{_OWN}/images/pull", "Images and templates",
        "Pull an image; a JSON object a line, the last of them `done` or `error`.",
        _STREAM, ("Pull",),
    ),
    Operation("post", f"{_OWN}/images/prune", "Images and templates",
        "Remove what no sandbox stands on.", {200: Reply(ref("Pruned"))},
    ),
    Operation("delete", f"{_OWN}/images/{{reference}}", "Images and templates",
        "Remove an image by reference or digest.", NOTHING,
    ),
    Operation("get", f"{_OWN}/templates", "Images and templates", "The templates.",
        {200: Reply(several(ref("Template")))},
    ),
    Operation("post", f"{_OWN}/templates", "Images and templates",
        "Build a template, from a Dockerfile or its own recipe; a JSON object a line.",
        _STREAM, ("Build",),
    ),
    Operation("delete", f"{_OWN}/templates/{{name}}", "Images and templates",
        "Remove a template's build.", NOTHING,
    ),
    Operation("get", f"{_OWN}/info", "Server", "Version, process, what runs.",
        {200: Reply(ref("Info"))},
    ),
    Operation("get", f"{_OWN}/doctor", "Server", "What each backend says about this host.",
        {200: Reply(ref("Doctor"))},
    ),
    Operation("post", f"{_OWN}/shutdown", "This machine's user only",
        "Leave, or start again as a newer version; sandboxes live on.",
        {202: Reply(ref("Leaving"))}, ("Shutdown",),
    ),
    Operation("get", f"{_OWN}/keys", "This machine's user only", "The API keys, without secrets.",
        {200: Reply(several(ref("Key")))},
    ),
    Operation("post", f"{_OWN}/keys", "This machine's user only",
        "Make an API key; it is shown only now.", {201: Reply(ref("MadeKey"))}, ("NewKey",),
    ),
    Operation("delete", f"{_OWN}/keys/{{id}}", "This machine's user only", "Remove an API key.",
        NOTHING,
    ),
    Operation("post", f"{_OWN}/links", "This machine's user only",
        "Open an address on the loopback for signed links to files.", {200: Reply(ref("Url"))},
    ),
    *TEMPLATE_OPERATIONS,
)  # fmt: skip
