"""The JSON shapes of requests and answers, as schemas of OpenAPI 3.1 (JSON Schema 2020-12).

Requests are written as strictly as they are judged; of answers, the keys that are promised.

Source: https://spec.openapis.org/oas/v3.1.1; the shapes are those of ``docs/design/interfaces.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

Schema = dict[str, object]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TIME: Schema = {"type": "string", "format": "date-time"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
SECONDS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 2592000}


def ref(name: str) -> Schema:
    """A shape by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def several(item: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": item}


def optional(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def said(schema: Schema, text: str, **more: object) -> Schema:
    """The same, with words for people."""
    return {**schema, "description": text, **more}


def record(required: str, *, strict: bool = False, **properties: Schema) -> Schema:
    """An object.

    Args:
        required: keys that are always there, parted by spaces.
        strict: whether other keys are refused.
        properties: its keys.
    """
    out: Schema = {"type": "object", "properties": properties}
    if required:
        out["required"] = required.split()
    if strict:
        out["additionalProperties"] = False
    return out


_NETWORK = record(
    "",
    strict=True,
    allowOut=said(several(TEXT), "IPv4 addresses or CIDRs that may be reached; wins over denyOut"),
    denyOut=said(several(TEXT), "IPv4 addresses or CIDRs that may not be reached"),
    allowPublicTraffic=said(FLAG, "false: requests to ports need the traffic token"),
    maskRequestHost=said(
        TEXT,
        "what services inside see as Host; ${PORT} is the port",
        maxLength=255,
        pattern=r"^([A-Za-z0-9._:\[\]-]|\$\{PORT\})*$",
    ),
    httpsPorts=said(several(PORT), "ports that speak TLS inside"),
)

_OURS = record(
    "",
    image=said(TEXT, "an OCI image instead of a template"),
    backend=said(TEXT, "which backend; the strongest usable one if not given"),
    minIsolation=said(
        {"enum": ["hardware-vm", "emulated-vm", "user-kernel"]}, "refuse anything weaker"
    ),
    name=said(TEXT, "a unique name", pattern="^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$"),
    cpus=said(NUMBER, "cores", minimum=0.05),
    memoryMiB=said(WHOLE, "memory", minimum=64, maximum=2**40),
    diskMiB=said(WHOLE, "what it may write", minimum=16, maximum=2**40),
    pids=said(WHOLE, "the most processes", minimum=16, maximum=2**22),
    ports=several(record("guest", guest=PORT, host={**PORT, "minimum": 0})),
    idleTimeout=said(SECONDS, "seconds without activity until it ends"),
    workdir=said(TEXT, "where commands run", pattern="^[/~]"),
    user=said(TEXT, "as whom commands run"),
)

_ID: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31}
_MODE: Schema = {"type": "integer", "minimum": 0, "maximum": 0o7777}
OWNER = (("uid", _ID), ("gid", _ID), ("mode", _MODE))

SHAPES: Mapping[str, Schema] = {
    "Error": record(
        "code message",
        code=said(WHOLE, "the HTTP status"),
        message=said(TEXT, "for people"),
        error_code=said(TEXT, "stable, for programs"),
        hint=said(TEXT, "what to do"),
    ),
    "Health": record("status", status=TEXT),
    "Network": _NETWORK,
    "NetworkChange": record(
        "",
        strict=True,
        allowOut=several(TEXT),
        denyOut=several(TEXT),
        allow_internet_access=FLAG,
    ),
    "NewSandbox": said(
        record(
            "templateID",
            strict=True,
            templateID=said(TEXT, "name of a template"),
            timeout=said(SECONDS, "seconds until it ends, counted from when it is ready"),
            metadata=said(TEXTS, "labels that lists can be filtered by"),
            envVars=said(TEXTS, "environment of all its commands"),
            secure=said(FLAG, "every sandbox has a token, whatever this says"),
            allow_internet_access=said(FLAG, "whether it may reach the internet"),
            network=ref("Network"),
            volumeMounts=said(several(ref("Mount")), "volumes to be seen inside"),
            tupper=ref("Extension"),
        ),
        "A body as E2B's clients send it, with our own keys below `tupper`.",
    ),
    "Extension": _OURS,
    "PlainSandbox": said(
        record(
            "",
            strict=True,
            template=said(TEXT, "name of a template; `base` if not given"),
            image=said(TEXT, "an OCI image instead"),
            timeout=said(SECONDS, "seconds until it ends; 300 if not given"),
            idle_timeout=said(SECONDS, "seconds without activity until it ends"),
            name=said(TEXT, "a unique name", pattern="^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$"),
            cpus=said(NUMBER, "cores", minimum=0.05),
            memory_mib=said(WHOLE, "memory", minimum=64, maximum=2**40),
            disk_mib=said(WHOLE, "what it may write", minimum=16, maximum=2**40),
            pids=said(WHOLE, "the most processes", minimum=16, maximum=2**22),
            env=said(TEXTS, "environment of all its commands"),
            metadata=said(TEXTS, "labels that lists can be filtered by"),
            workdir=said(TEXT, "where commands run", pattern="^[/~]"),
            user=said(TEXT, "as whom commands run"),
            internet=said(FLAG, "whether it may reach the internet"),
            network=ref("Network"),
            backend=said(TEXT, "which backend"),
            min_isolation={"enum": ["hardware-vm", "emulated-vm", "user-kernel"]},
        ),
        "A body in plain words; it may be empty.",
    ),
    "Sandbox": record(
        "templateID sandboxID clientID envdVersion",
        templateID=TEXT,
        sandboxID=TEXT,
        clientID=TEXT,
        alias=TEXT,
        envdVersion=TEXT,
        envdAccessToken=said(TEXT, "for its agent, as X-Access-Token"),
        trafficAccessToken=said(
            optional(TEXT), "for its ports, as e2b-traffic-access-token, if they are private"
        ),
        domain=said(optional(TEXT), "ports are at PORT-ID.DOMAIN"),
        tupper=ref("State"),
    ),
    "SandboxDetail": record(
        "templateID sandboxID clientID startedAt endAt cpuCount memoryMB diskSizeMB state "
        "envdVersion",
        templateID=TEXT,
        sandboxID=TEXT,
        clientID=TEXT,
        alias=TEXT,
        startedAt=TIME,
        endAt=TIME,
        cpuCount=WHOLE,
        memoryMB=WHOLE,
        diskSizeMB=WHOLE,
        state={"enum": ["running", "paused"]},
        envdVersion=TEXT,
        envdAccessToken=TEXT,
        metadata=TEXTS,
        allowInternetAccess=optional(FLAG),
        domain=optional(TEXT),
        network={"type": "object"},
        lifecycle=record(
            "autoResume onTimeout", autoResume=FLAG, onTimeout={"enum": ["kill", "pause"]}
        ),
        pauseMode={"enum": ["full", "filesystem"]},
        envdUnresponsiveAtPause=FLAG,
        tupper=ref("State"),
    ),
    "State": record(
        "state backend isolation health",
        state={"enum": ["starting", "running", "paused", "ended"]},
        backend=TEXT,
        isolation=TEXT,
        mechanism=TEXT,
        kernel=TEXT,
        name=TEXT,
        image=TEXT,
        cpus=NUMBER,
        diskMiB=WHOLE,
        pids=WHOLE,
        deadline=said(optional(NUMBER), "unix seconds; null for never"),
        idleTimeout=optional(NUMBER),
        ports=said(TEXTS, "port inside → address on the host"),
        endReason=optional(TEXT),
        endDetail=TEXT,
        pausedAt=optional(NUMBER),
        savedBytes=optional(WHOLE),
        health={"enum": ["ok", "unreachable"]},
    ),
    "Timeout": record(
        "timeout", timeout=said({"type": ["number", "null"]}, "seconds from now; 0 is now")
    ),
    "Connect": record(
        "",
        timeout=said(SECONDS, "it lives at least this many seconds from now"),
        memory=said(FLAG, "false boots a paused one from its files"),
    ),
    "Pause": record(
        "",
        memory=said(FLAG, "processes and memory too, not only files; true if not given"),
        requireHealthyGuest=said(FLAG, "refuse when its agent does not answer; always so here"),
    ),
    "Resume": record("", timeout=said(SECONDS, "it lives this long; as at create if not given")),
    "NewForks": record(
        "",
        timeout=said(SECONDS, "they live this long; 300 if not given"),
        count={"type": "integer", "minimum": 1, "maximum": 100},
    ),
    "Fork": record("", sandbox=ref("Sandbox"), error=ref("Error")),
    "NewSnapshot": record("", name=said(TEXT, "NAME or NAME:TAG"), memory=FLAG),
    "Snapshot": record(
        "snapshotID names",
        snapshotID=TEXT,
        names=several(TEXT),
        tupper=record(
            "sandboxID createdAt sizeBytes backend version memory",
            sandboxID=TEXT,
            createdAt=TIME,
            sizeBytes=WHOLE,
            backend=TEXT,
            version=TEXT,
            memory=FLAG,
        ),
    ),
    "Refresh": record("", duration=said(NUMBER, "it lives at least this many seconds from now")),
    "Command": record(
        "command",
        strict=True,
        command=said(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": TEXT, "minItems": 1},
                ]
            },
            "text for a login shell, or the program and its arguments",
        ),
        cwd=TEXT,
        user=TEXT,
        env=TEXTS,
        stdin=TEXT,
        timeout=said(
            {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 86400},
            "seconds, 60 if not given; null for no limit",
        ),
        background=FLAG,
    ),
    "Result": record(
        "stdout stderr exit_code timed_out status dropped_bytes",
        stdout=TEXT,
        stderr=TEXT,
        exit_code=WHOLE,
        timed_out=FLAG,
        status=TEXT,
        dropped_bytes=said(WHOLE, "bytes of output that were too many to be kept"),
    ),
    "Begun": record("pid", pid=WHOLE),
    "Written": record("path name type", path=TEXT, name=TEXT, type=TEXT),
    "Metric": record(
        "timestamp timestampUnix cpuCount cpuUsedPct memUsed memTotal memCache diskUsed diskTotal",
        timestamp=TIME,
        timestampUnix=WHOLE,
        cpuCount=WHOLE,
        cpuUsedPct=said(NUMBER, "of one core"),
        memUsed=WHOLE,
        memTotal=WHOLE,
        memCache=WHOLE,
        diskUsed=WHOLE,
        diskTotal=WHOLE,
    ),
    "Metrics": record(
        "sandboxes", sandboxes={"type": "object", "additionalProperties": ref("Metric")}
    ),
    "LogEntry": record(
        "timestamp message level fields",
        timestamp=TIME,
        message=TEXT,
        level={"enum": ["debug", "info", "warn", "error"]},
        fields=TEXTS,
    ),
    "Logs": record("logs", logs=several(ref("LogEntry"))),
    "LogsV1": record(
        "logs logEntries",
        logs=several(record("timestamp line", timestamp=TIME, line=TEXT)),
        logEntries=several(ref("LogEntry")),
    ),
    "Secret": record(
        "secretID name currentVersion metadata createdAt updatedAt",
        secretID=TEXT,
        name=TEXT,
        currentVersion=WHOLE,
        metadata=TEXTS,
        createdAt=TIME,
        updatedAt=TIME,
    ),
    "NewSecret": record(
        "name value",
        strict=True,
        name={**TEXT, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
        value=said(TEXT, "never shown again", minLength=1, maxLength=16384),
        metadata=TEXTS,
    ),
    "SecretChange": record(
        "value", strict=True, value={**TEXT, "minLength": 1, "maxLength": 16384}, metadata=TEXTS
    ),
    "Volume": record("volumeID name", volumeID=TEXT, name=TEXT),
    "VolumeAndToken": record(
        "volumeID name token",
        volumeID=TEXT,
        name=TEXT,
        token=said(TEXT, "for its content, as Authorization: Bearer"),
    ),
    "NewVolume": record("name", strict=True, name={**TEXT, "pattern": "^[A-Za-z0-9_-]{1,128}$"}),
    "Mount": record("name path", strict=True, name=TEXT, path={**TEXT, "pattern": "^/"}),
    "Stat": record(
        "name type path size mode uid gid atime mtime ctime",
        name=TEXT,
        type={"enum": ["unknown", "file", "directory", "symlink"]},
        path=TEXT,
        size=WHOLE,
        mode=said(WHOLE, "permission bits"),
        uid=WHOLE,
        gid=WHOLE,
        atime=TIME,
        mtime=TIME,
        ctime=TIME,
        target=said(TEXT, "of a link, as written in it"),
    ),
    "StatChange": record("", strict=True, uid=_ID, gid=_ID, mode=_MODE),
    "ContentError": record(
        "code message", code=said(TEXT, "stable, for programs"), message=said(TEXT, "for people")
    ),
    "Info": record(
        "version protocol pid engineId sandboxes",
        version=TEXT,
        protocol=WHOLE,
        pid=WHOLE,
        engineId=TEXT,
        sandboxes=WHOLE,
        background=FLAG,
        unbuilt=several(TEXT),
    ),
    "Doctor": record("backends default", backends=several({"type": "object"}), default=TEXT),
    "Idle": record("idleTimeout", idleTimeout=optional(SECONDS)),
    "Key": record("id label", id=TEXT, label=TEXT, createdAt=NUMBER),
    "NewKey": record("", label=TEXT),
    "MadeKey": record("id key label", id=TEXT, key=TEXT, label=TEXT),
    "Publish": record("port", port=PORT, host={**PORT, "minimum": 0}),
    "Address": record("address", address=TEXT),
    "Url": record("url", url=TEXT),
    "Shutdown": record("", force=FLAG, restart=FLAG),
    "Leaving": record("leaving restart", leaving=FLAG, restart=FLAG),
    "Image": record(
        "digest references sizeBytes",
        digest=TEXT,
        references=several(TEXT),
        sizeBytes=WHOLE,
        createdAt=optional(NUMBER),
        lastUsed=optional(NUMBER),
        inUse=FLAG,
    ),
    "Pull": record("reference", reference={**TEXT, "minLength": 1}),
    "Pruned": record("removed freedBytes", removed=several(TEXT), freedBytes=WHOLE),
    "Template": record(
        "name",
        name=TEXT,
        digest=TEXT,
        builtAt=optional(NUMBER),
        sizeBytes=optional(WHOLE),
        description=TEXT,
        isCurrent=FLAG,
    ),
    "Build": record(
        "name",
        name={**TEXT, "minLength": 1},
        dockerfile=TEXT,
        buildArgs=TEXTS,
        force=FLAG,
    ),
    "BuildRequest": record(
        "name",
        name=said(
            TEXT, "`name` or `name:tag`", pattern="^[a-z0-9][a-z0-9._-]{0,60}(:[a-z0-9_-]+)?$"
        ),
        tags=several({**TEXT, "pattern": "^[a-z0-9_-]+$"}),
        cpuCount=said(NUMBER, "of its sandboxes", minimum=1),
        memoryMB=said(WHOLE, "of its sandboxes", minimum=128, maximum=2**40),
    ),
    "BuildRequested": record(
        "templateID buildID public names tags aliases",
        templateID=TEXT,
        buildID=TEXT,
        public=FLAG,
        names=several(TEXT),
        tags=several(TEXT),
        aliases=several(TEXT),
    ),
    "FilesLink": record("present", present=FLAG, url=TEXT),
    "BuildPlan": record(
        "",
        fromImage=TEXT,
        fromTemplate=TEXT,
        force=FLAG,
        startCmd=TEXT,
        readyCmd=TEXT,
        steps=several(record("type", type=TEXT, args=several(TEXT), filesHash=TEXT, force=FLAG)),
    ),
    "BuildStatus": record(
        "templateID buildID status logs logEntries",
        templateID=TEXT,
        buildID=TEXT,
        status={"enum": ["waiting", "building", "ready", "error"]},
        logs=several(TEXT),
        logEntries=several({"type": "object"}),
        reason={"type": "object"},
    ),
    "BuildLogs": record("logs", logs=several({"type": "object"})),
    "Alias": record("templateID public", templateID=TEXT, public=FLAG),
    "Tag": record("tag buildID createdAt", tag=TEXT, buildID=TEXT, createdAt=TIME),
    "TagsWanted": record("target tags", target=TEXT, tags=several(TEXT)),
    "TagsUnwanted": record("name tags", name=TEXT, tags=several(TEXT)),
    "TemplateChange": record("", public=FLAG),
}
