# Made by tools/make_sync.py from _async/control.py. Do not edit.
"""Calls to the control plane: sandboxes are made, found, prolonged and ended there.

The local background process is started when nothing answers. Client and process compare versions
when they meet: an older idle process is replaced, a busy one is used as it is as long as it speaks
our protocol. Other objects of this program then use that process without asking it again.
Source: ``docs/design/interfaces.md``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote

import tupper
from tupper.core import log
from tupper.core.errors import GuestMisbehaved, TupperError
from tupper.protocol.connect import as_list, as_object, parse_json
from tupper.sdk import _daemon
from tupper.sdk._io_sync import Http, Lock, in_thread, sleep
from tupper.sdk._shared import errors
from tupper.sdk._shared.endpoint import Target
from tupper.sdk._shared.info import parse_info
from tupper.sdk._shared.link import Answer, Ask, LinkError, Trouble
from tupper.sdk._shared.types import SandboxInfo, SandboxState

PROTOCOL = 1
_PROBE_TIMEOUT_S = 5.0
_RESUME_TIMEOUT_S = 120.0
_RETRY_MAX_S = 10.0
# Address file → its inode and time, of the background processes that have been compared and have
# nothing left to build. A new process writes a new file.
_compared: dict[str, tuple[int, int]] = {}


class Control:
    """One control plane. May be used by several tasks.

    Args:
        target: which one.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._http: Http | None = None
        self._lock = Lock()
        self._unbuilt: tuple[str, ...] = ()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make one call; repeat it while the server says that it is busy and asks for that.

        Args:
            method: of HTTP.
            path: of the route.
            body: JSON, if any.
            query: parameters.
            timeout_s: seconds; None for the target's.
            headers: more of them.

        Errors:
            The exception for the status, if it is 300 or more; UnavailableException when the
            server cannot be reached, TimeoutException when it does not answer in time.
        """
        sent = {"Content-Type": "application/json", **(headers or {})}
        limit = self.target.request_timeout_s if timeout_s is None else timeout_s
        ask = Ask(method, path, query or {}, sent, limit)
        content = None if body is None else json.dumps(body).encode()
        attempt = 0
        while (answer := self._send(ask, content)).status >= 300:
            wait_s = retry_after(answer, attempt)
            if wait_s is None or attempt >= self.target.retries:
                break
            attempt += 1
            sleep(wait_s)
        else:
            return answer
        raise errors.from_control(answer.status, as_object(decode(answer, strict=False)))

    def _send(self, ask: Ask, content: bytes | None) -> Answer:
        http = self.connect()
        try:
            return http.call(ask, content)
        except LinkError as error:
            if error.trouble is not Trouble.REFUSED or not self.target.is_own_process:
                raise self.failure(error, ask) from error
        self._forget(http)
        http = self.connect()
        try:
            return http.call(ask, content)
        except LinkError as error:
            raise self.failure(error, ask) from error

    def failure(self, error: LinkError, ask: Ask) -> TupperError:
        """The exception for a request that got no answer."""
        where = self.target.url or "the background process"
        if error.trouble is Trouble.SILENT:
            return errors.TimeoutException(
                f"{where} did not answer {ask.method} {ask.path} within {ask.timeout_s or 0:g} s"
            )
        return errors.UnavailableException(
            f"cannot talk to {where}: {error.detail}", code="daemon_unavailable"
        )

    def connect(self) -> Http:
        """The connection pool; starts the local background process if need be."""
        if self._http is not None:
            return self._http
        with self._lock:
            if self._http is None:
                self._http = self._open()
            return self._http

    def _open(self) -> Http:
        if not self.target.is_own_process:
            return Http(self.target.origin())
        met = self._address_mark()
        if met is not None and _compared.get(str(self.target.paths.address_file)) == met:
            with contextlib.suppress(OSError):  # it has left just now
                return Http(self.target.origin())
        is_ours = False  # a process that we have just started is not replaced again
        for _ in range(3):
            met = self._address_mark()
            try:
                http = Http(self.target.origin())
                answer = http.call(Ask("GET", "/tupper/v1/info", timeout_s=_PROBE_TIMEOUT_S))
            except (LinkError, OSError):
                in_thread(lambda: _daemon.start(self.target.paths))
                is_ours = True
                continue
            info = decode(answer)
            if is_ours or not is_outdated(info) or not self._shut_down(http):
                self._unbuilt = parse_unbuilt(info)
                if met is not None and not self._unbuilt:
                    _compared[str(self.target.paths.address_file)] = met
                return http
            http.close()
        raise errors.UnavailableException(
            "the background process starts but does not answer", code="daemon_unavailable"
        )

    def _address_mark(self) -> tuple[int, int] | None:
        """What tells one background process from the next; None if there is none."""
        try:
            status = self.target.paths.address_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def has_to_build(self, template: str) -> bool:
        """Whether the first sandbox of a template has to wait for its build. Local only."""
        self.connect()
        return template in self._unbuilt

    def _shut_down(self, http: Http) -> bool:
        """Ask an older idle process to leave. Returns whether it has."""
        try:
            answer = http.call(
                Ask("POST", "/tupper/v1/shutdown", timeout_s=_PROBE_TIMEOUT_S), b"{}"
            )
        except LinkError:
            return True
        if answer.status >= 300:
            log.event("sdk.older_server_is_busy", status=answer.status)
            return False
        return in_thread(lambda: _daemon.wait_gone(self.target.paths))

    def _forget(self, http: Http) -> None:
        with self._lock:
            if self._http is http:
                self._http = None
            _compared.pop(str(self.target.paths.address_file), None)
        http.close()

    def close(self) -> None:
        """Close the connections; the object can be used again."""
        if self._http is not None:
            self._http.close()

    def read(self, answer: Answer) -> object:
        """The JSON of an answer; of E2B's cloud without what a tupper would add."""
        value = decode(answer)
        if self.target.cloud is None:
            return value
        items = as_list(value)
        return _bare(value) if items is None else [_bare(item) for item in items]

    def mark(self, info: SandboxInfo) -> SandboxInfo:
        """Say so if a sandbox is on E2B's cloud."""
        cloud = self.target.cloud
        return info if cloud is None else cloud.mark(info)

    def get_info(self, sandbox_id: str, *, ended: bool = False) -> SandboxInfo:
        """One sandbox. E2B's cloud knows none that has ended."""
        query = {"ended": "true"} if ended and self.target.cloud is None else {}
        answer = self.call(
            "GET",
            sandbox_path(sandbox_id),
            query=query,
            timeout_s=_PROBE_TIMEOUT_S if ended else None,
        )
        return self.mark(parse_info(self.read(answer)))

    def is_there(self, sandbox_id: str) -> bool:
        """Whether a sandbox runs and its agent answers; waits while it is being saved.

        One that is paused and wants to be resumed by its use is resumed.
        """
        try:
            info = self.get_info(sandbox_id)
            if info.state is SandboxState.PAUSED and info.lifecycle:
                if not info.lifecycle["auto_resume"]:
                    return False
                if self.target.cloud is not None:
                    return True  # its edge does that by itself
                path = sandbox_path(sandbox_id, "/connect", version="/v2")
                self.call("POST", path, body={"tupper": {}}, timeout_s=_RESUME_TIMEOUT_S)
                return True
        except TupperError:
            return False
        return info.state is SandboxState.RUNNING and info.health == "ok"

    def explain(self, sandbox_id: str, trouble: Trouble) -> TupperError:
        """The exception for a sandbox whose agent cannot be talked to any more.

        Args:
            sandbox_id: whose.
            trouble: how its connection failed.
        """
        for attempt in range(4):
            try:
                info = self.get_info(sandbox_id, ended=True)
            except errors.NotFoundException:
                return errors.SandboxNotRunningException(f"{errors.GONE}: {sandbox_id}")
            except TupperError as error:
                return errors.SandboxUnreachableException(
                    f"{errors.UNREACHABLE}, and neither does the server: {error.message}"
                )
            if info.state is SandboxState.PAUSED:
                hint = "Sandbox.connect(…) resumes it"
                text = f"{errors.GONE}: {sandbox_id} (paused)"
                return errors.SandboxNotRunningException(text, hint=hint)
            if info.state is SandboxState.ENDED or info.end_reason:
                return errors.SandboxNotRunningException(describe_end(info))
            if trouble is Trouble.SILENT or info.health != "ok":
                return errors.SandboxUnreachableException(f"{errors.UNREACHABLE}: {sandbox_id}")
            sleep(0.1 * 2**attempt)  # the server may not have noticed yet
        return errors.SandboxNotRunningException(f"{errors.GONE}: {sandbox_id}")


def describe_end(info: SandboxInfo) -> str:
    """The phrase, with the reason that is on record."""
    reason = (info.end_reason or "").replace("_", " ")
    detail = f", {info.end_detail}" if info.end_detail else ""
    return f"{errors.GONE}: {info.sandbox_id}" + (f" ({reason}{detail})" if reason else "")


def sandbox_path(sandbox_id: str, tail: str = "", *, version: str = "") -> str:
    """The route of one sandbox."""
    if not sandbox_id:
        raise errors.InvalidArgumentException("the sandbox id is empty")
    return f"{version}/sandboxes/{quote(sandbox_id, safe='')}{tail}"


def template_path(template_id: str) -> str:
    """The route of one template, or of a snapshot, which E2B has among them."""
    if not template_id:
        raise errors.InvalidArgumentException("the id is empty")
    return f"/templates/{quote(template_id, safe='')}"


def decode(answer: Answer, *, strict: bool = True) -> object:
    """The JSON of an answer; None for an empty one."""
    if not answer.body:
        return None
    try:
        return parse_json(answer.body, "the server's answer")
    except GuestMisbehaved as error:
        if strict:
            raise errors.ProtocolException(error.message) from error
        return None


def _bare(value: object) -> object:
    fields = as_object(value)
    return value if fields is None else {k: v for k, v in fields.items() if k != "tupper"}


def retry_after(answer: Answer, attempt: int) -> float | None:
    """Seconds until the call may be made again; None if it should not be.

    Source: wire specification 3, "Retry contract". Here a server has to ask for it.
    """
    if answer.status not in (429, 502, 503, 504):
        return None
    if answer.headers.get("should-retry", "").lower() != "true":
        return None
    text = answer.headers.get("retry-after", "")
    return min(_RETRY_MAX_S, float(text) if text.isdigit() else 0.1 * 2**attempt)


def is_outdated(info: object) -> bool:
    """Whether the process that answered should make room for ours."""
    fields = as_object(info) or {}
    if fields.get("protocol") != PROTOCOL:
        return True
    theirs = fields.get("version")
    if not isinstance(theirs, str) or not any(_release(theirs)):
        return False  # from a source tree that is not installed
    return _release(theirs) < _release(tupper.__version__)


def parse_unbuilt(info: object) -> tuple[str, ...]:
    """The templates that the first sandbox would have to build."""
    names = (as_object(info) or {}).get("unbuilt")
    return tuple(map(str, cast("list[object]", names))) if isinstance(names, list) else ()


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
