"""Calls to the control plane that the SDK's public part does not have: images, templates, logs.

Source: ``docs/design/interfaces.md``, "Our own routes".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast
from urllib.parse import quote

from tupper import (
    NotFoundException,
    SandboxException,
    SandboxInfo,
    SandboxMetrics,
    SandboxNotFoundException,
    TimeoutException,
)
from tupper.cli._output import Progress
from tupper.protocol.connect import as_object
from tupper.sdk import _daemon
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.errors import from_control
from tupper.sdk._shared.info import parse_metrics
from tupper.sdk._shared.link import Ask, LinkError, Trouble
from tupper.sdk._sync.control import Control, decode

_ROOT = "/tupper/v1"
# A pull or a build may say nothing for long; it ends when the background process says so.
_SILENCE_S = 900.0
_CALL_S = 300.0
_METRICS_AT_ONCE = 100


def _open() -> Control:
    return Control(find_target({}))


def _call(method: str, path: str, body: Mapping[str, object] | None = None) -> object:
    return decode(_open().call(method, _ROOT + path, body=body, timeout_s=_CALL_S))


def _objects(value: object) -> list[dict[str, object]]:
    """The objects of a JSON list; whatever else it holds is left out."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [found for item in items if (found := as_object(item)) is not None]


def list_images() -> list[dict[str, object]]:
    """The images in the store."""
    return _objects(_call("GET", "/images"))


def remove_image(reference: str) -> None:
    """Remove an image by reference or digest."""
    _call("DELETE", f"/images/{quote(reference, safe='')}")


def prune_images() -> dict[str, object]:
    """Remove images that nothing uses.

    Shape:
        ``{"removed": [str, …], "freedBytes": int}``
    """
    return as_object(_call("POST", "/images/prune", {})) or {}


def pull_image(reference: str, bar: Progress) -> dict[str, object]:
    """Bring an image into the store; what the store says about it."""
    done = _follow("/images/pull", {"reference": reference}, bar, None)
    return as_object(done.get("image")) or {}


def list_templates() -> list[dict[str, object]]:
    """The templates, built or not."""
    return _objects(_call("GET", "/templates"))


def build_template(
    body: Mapping[str, object], bar: Progress, *, log: Callable[[str], None] | None
) -> None:
    """Build a template.

    Args:
        body: of the request.
        bar: shows the steps.
        log: is given what the steps print.
    """
    _follow("/templates", body, bar, log)


def has_to_build(name: str) -> bool:
    """Whether the first sandbox of a template has to wait for its build."""
    return _open().has_to_build(name)


def remove_template(name: str) -> None:
    """Remove what was built of a template."""
    _call("DELETE", f"/templates/{quote(name, safe='')}")


def resume(sandbox: str, timeout_s: int | None) -> None:
    """Let a paused sandbox go on; None is the life that was asked for when it was made."""
    body: dict[str, object] = {"tupper": {}}
    if timeout_s is not None:
        body["timeout"] = timeout_s
    _open().call("POST", f"/v2/sandboxes/{quote(sandbox, safe='')}/connect", body=body)


def list_snapshots(sandbox: str | None) -> list[dict[str, object]]:
    """All snapshots, or those of a sandbox; the newest first.

    Shape:
        ``{"snapshotID", "names", "sandboxID", "createdAt", "sizeBytes", …}``
    """
    query = {"sandboxID": sandbox} if sandbox else {}
    control, found, token = _open(), list[dict[str, object]](), ""
    while True:
        page = {**query, "nextToken": token} if token else query
        answer = control.call("GET", "/snapshots", query=page)
        for one in _objects(decode(answer)):
            found.append(one | (as_object(one.pop("tupper", None)) or {}))
        token = answer.headers.get("x-next-token") or ""
        if not token:
            return found


def metrics_of(sandboxes: Sequence[str]) -> dict[str, SandboxMetrics]:
    """What sandboxes use now; those that have ended are left out."""
    control, found = _open(), dict[str, SandboxMetrics]()
    for start in range(0, len(sandboxes), _METRICS_AT_ONCE):
        names = ",".join(sandboxes[start : start + _METRICS_AT_ONCE])
        answer = decode(control.call("GET", "/sandboxes/metrics", query={"sandbox_ids": names}))
        samples = as_object((as_object(answer) or {}).get("sandboxes")) or {}
        found |= {name: parse_metrics([sample])[0] for name, sample in samples.items()}
    return found


def info_of(sandbox: str) -> SandboxInfo:
    """A sandbox, also one that ended; E2B's interface does not know those.

    Errors:
        SandboxNotFoundException: there is none.
    """
    try:
        return _open().get_info(sandbox, ended=True)
    except NotFoundException as missing:
        raise SandboxNotFoundException(missing.message, code=missing.code) from missing


def log_of(sandbox: str) -> str:
    """The log of a sandbox, also of one that ended."""
    path = f"{_ROOT}/sandboxes/{quote(sandbox, safe='')}/log"
    return _open().call("GET", path).body.decode(errors="replace")


def create_key(label: str) -> dict[str, object]:
    """Make an API key.

    Shape:
        ``{"id": str, "key": str, "label": str}``
    """
    return as_object(_call("POST", "/keys", {"label": label})) or {}


def list_keys() -> list[dict[str, object]]:
    """The API keys, without what they are."""
    return _objects(_call("GET", "/keys"))


def remove_key(key_id: str) -> None:
    """Remove an API key."""
    _call("DELETE", f"/keys/{quote(key_id, safe='')}")


def displace_background() -> None:
    """Have the local background process leave, so that a server can take its place.

    Sandboxes run on, and the server adopts them. One that serves in the foreground stays.
    """
    target = replace(find_target({}), url="", api_key="")
    if not _daemon.answers(target.paths):
        return
    control = Control(target)
    info = as_object(decode(control.call("GET", f"{_ROOT}/info"))) or {}
    if info.get("background") is True:
        control.call("POST", f"{_ROOT}/shutdown", body={"force": True})
        _daemon.wait_gone(target.paths)


def shut_down() -> None:
    """Ask the background process to leave, whatever runs."""
    _call("POST", "/shutdown", {"force": True})


def _follow(
    path: str, body: Mapping[str, object], bar: Progress, log: Callable[[str], None] | None
) -> dict[str, object]:
    """Follow a stream of events to its end; the last one.

    Errors:
        The exception for the error that the stream reports.
    """
    for event in _events(path, body):
        match event.get("event"):
            case "progress":
                bar(
                    str(event.get("message", "")),
                    _count(event, "doneBytes"),
                    _count(event, "totalBytes"),
                )
            case "log" if log is not None:
                bar.clear()
                log(str(event.get("text", event.get("message", ""))).rstrip("\n"))
            case "error":
                problem = as_object(event.get("error")) or {}
                status = problem.get("code")
                raise from_control(status if isinstance(status, int) else 500, problem)
            case "done":
                return event
            case _:
                pass
    raise SandboxException(f"the background process went away during {path}")


def _count(event: Mapping[str, object], name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) else None


def _events(path: str, body: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """The lines of the answer as they come."""
    headers = {"Content-Type": "application/json"}
    ask = Ask("POST", _ROOT + path, headers=headers, timeout_s=_SILENCE_S)
    try:
        control = _open()  # kept: its connections close when it is collected
        reply = control.connect().open(ask, json.dumps(body).encode())
        try:
            if reply.status >= 300:
                problem = as_object(json.loads(reply.read_all() or b"{}"))
                raise from_control(reply.status, problem)
            pending = b""
            while chunk := reply.read():
                *lines, pending = (pending + chunk).split(b"\n")
                yield from (
                    found for line in lines if line and (found := as_object(json.loads(line)))
                )
        finally:
            reply.close()
    except LinkError as error:
        if error.trouble is Trouble.SILENT:
            text = f"the background process said nothing for {_SILENCE_S:g} s during {path}"
            raise TimeoutException(text) from error
        raise SandboxException(f"the connection broke during {path}: {error.detail}") from error
