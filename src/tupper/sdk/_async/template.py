"""Templates: built from a draft, named, tagged."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack
from urllib.parse import quote, urlsplit

from tupper.protocol.connect import as_object
from tupper.sdk._async.control import Control, decode
from tupper.sdk._io_async import Http, in_thread, read_pieces, sleep
from tupper.sdk._shared import errors
from tupper.sdk._shared.builder import Draft, Instruction, TemplateBase, TemplateClass
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.link import Answer, Ask, LinkError, Origin
from tupper.sdk._shared.template import (
    BuildInfo,
    LogEntry,
    LogEntryEnd,
    LogEntryStart,
    TemplateBuildStatus,
    TemplateBuildStatusResponse,
    TemplateTag,
    TemplateTagInfo,
    parse_build,
    parse_status,
    parse_tag_info,
    parse_tags,
    template_path,
)
from tupper.sdk._shared.types import ApiParams

UPLOAD_TIMEOUT_S = 3600.0
_PIECE = 1024 * 1024
_POLL_S = 0.2
OnLogs = Callable[[LogEntry], None]


class AsyncTemplate(TemplateBase):
    """A template: what it starts from, and then step by step what it shall be.

    For example::

        template = AsyncTemplate().from_base_image().pip_install("numpy")
        await AsyncTemplate.build(template, "numbers")

    The steps run inside sandboxes; those that ran before are not run again.
    """

    @classmethod
    async def build(
        cls,
        template: TemplateClass,
        name: str | None = None,
        *,
        alias: str | None = None,
        tags: Sequence[str] | None = None,
        cpu_count: int | None = None,
        memory_mb: int | None = None,
        min_free_disk_mb: int | None = None,
        skip_cache: bool = False,
        on_build_logs: OnLogs | None = None,
        **opts: Unpack[ApiParams],
    ) -> BuildInfo:
        """Build a template and wait until it can be used.

        Args:
            template: what to build.
            name: ``name`` or ``name:tag``.
            alias: the same, by its old word.
            tags: more tags.
            cpu_count: CPUs of its sandboxes.
            memory_mb: memory of its sandboxes, in MiB.
            min_free_disk_mb: exists for compatibility.
            skip_cache: run every step again.
            on_build_logs: called with each line of the log.
            opts: how to reach the server.

        Errors:
            BuildException: a step failed, with its last words; its traceback ends at the line
                that asked for the step.
            FileUploadException: the files of a ``copy`` could not be sent.
        """
        tell = on_build_logs or _ignore
        tell(LogEntryStart(timestamp=_now(), message="Build started"))
        control = Control(find_target(opts))
        try:
            options = _options(cpu_count, memory_mb, min_free_disk_mb)
            work = _Work(control, template.draft, tell, opts.get("request_timeout"))
            info = await work.begin(_name(name, alias), tags, options, skip_cache=skip_cache)
            await work.finish(info)
            return info
        finally:
            await control.close()
            tell(LogEntryEnd(timestamp=_now(), message="Build finished"))

    @classmethod
    async def build_in_background(
        cls,
        template: TemplateClass,
        name: str | None = None,
        *,
        alias: str | None = None,
        tags: Sequence[str] | None = None,
        cpu_count: int | None = None,
        memory_mb: int | None = None,
        min_free_disk_mb: int | None = None,
        skip_cache: bool = False,
        on_build_logs: OnLogs | None = None,
        **opts: Unpack[ApiParams],
    ) -> BuildInfo:
        """Begin to build a template; :meth:`get_build_status` says how far it is.

        The arguments are those of :meth:`build`. Files are uploaded before it returns.
        """
        control = Control(find_target(opts))
        try:
            options = _options(cpu_count, memory_mb, min_free_disk_mb)
            timeout = opts.get("request_timeout")
            work = _Work(control, template.draft, on_build_logs or _ignore, timeout)
            return await work.begin(_name(name, alias), tags, options, skip_cache=skip_cache)
        finally:
            await control.close()

    @classmethod
    async def get_build_status(
        cls, build_info: BuildInfo, logs_offset: int | None = None, **opts: Unpack[ApiParams]
    ) -> TemplateBuildStatusResponse:
        """How far a build is, and its log from a line on, a hundred lines at a time."""
        control = Control(find_target(opts))
        try:
            return await _status(control, build_info, logs_offset or 0)
        finally:
            await control.close()

    @classmethod
    async def exists(cls, name: str, **opts: Unpack[ApiParams]) -> bool:
        """Whether there is a template, ``name`` or ``name:tag``."""
        control = Control(find_target(opts))
        path = f"/templates/aliases/{quote(name, safe='')}"
        try:
            await _call(control, errors.TemplateException, "GET", path)
        except errors.TemplateException as error:
            if error.status_code in (403, 404):
                return error.status_code == 403
            raise
        finally:
            await control.close()
        return True

    @classmethod
    async def alias_exists(cls, alias: str, **opts: Unpack[ApiParams]) -> bool:
        """The same as :meth:`exists`."""
        return await cls.exists(alias, **opts)

    @classmethod
    async def assign_tags(
        cls, target_name: str, tags: str | Sequence[str], **opts: Unpack[ApiParams]
    ) -> TemplateTagInfo:
        """Give more tags to what ``name:tag`` stands for."""
        body = {"target": target_name, "tags": _tags(tags)}
        return parse_tag_info(await _ask(opts, "POST", "/templates/tags", body))

    @classmethod
    async def remove_tags(
        cls, name: str, tags: str | Sequence[str], **opts: Unpack[ApiParams]
    ) -> None:
        """Take tags from a template; the one named ``default`` stays."""
        await _ask(opts, "DELETE", "/templates/tags", {"name": name, "tags": _tags(tags)})

    @classmethod
    async def get_tags(cls, template_id: str, **opts: Unpack[ApiParams]) -> list[TemplateTag]:
        """The tags of a template."""
        return parse_tags(await _ask(opts, "GET", template_path(template_id, "/tags"), None))


class _Work:
    """One build, seen from the client."""

    def __init__(
        self, control: Control, draft: Draft, tell: OnLogs, request_timeout: float | None
    ) -> None:
        self._control = control
        self._draft = draft
        self._tell = tell
        self._upload_s = request_timeout or UPLOAD_TIMEOUT_S

    def _say(self, message: str) -> None:
        self._tell(LogEntry(timestamp=_now(), level="info", message=message))

    async def begin(
        self,
        name: str,
        tags: Sequence[str] | None,
        options: Mapping[str, object],
        *,
        skip_cache: bool,
    ) -> BuildInfo:
        """Ask for the build, send its files, start it."""
        body = {"name": name, "tags": list(tags or ()), **options}
        self._say(f"Requesting build for template: {name}")
        answer = await _call(self._control, errors.BuildException, "POST", "/v3/templates", body)
        info = parse_build(decode(answer), name)
        hashes = [await self._send(info, step) for step in self._draft.instructions]
        plan = self._draft.render(hashes)
        plan["force"] = skip_cache or plan["force"]
        path = template_path(info.template_id, f"/builds/{info.build_id}", version="/v2")
        await _call(self._control, errors.BuildException, "POST", path, plan)
        self._say("Build started")
        return info

    async def _send(self, info: BuildInfo, step: Instruction) -> str:
        """Upload the files of a COPY unless they are there; returns their hash."""
        if step.kind != "COPY":
            return ""
        try:
            files_hash = await in_thread(lambda: self._draft.hash_of(step))
            path = template_path(info.template_id, f"/files/{files_hash}")
            answer = await _call(self._control, errors.FileUploadException, "GET", path)
            found = as_object(decode(answer)) or {}
            url = found.get("url")
            if isinstance(url, str) and (step.force_upload or found.get("present") is not True):
                await self._upload(step, url, as_object(found.get("headers")) or {})
                self._say(f"Uploaded '{step.args[0]}'")
            else:
                self._say(f"Skipping upload of '{step.args[0]}', already cached")
        except OSError as error:
            text = f"cannot read {step.args[0]}: {error.strerror}"
            raise errors.FileUploadException(text).with_traceback(step.trace) from error
        except (errors.TemplateException, errors.FileUploadException) as error:
            raise error.with_traceback(step.trace) from error.__cause__
        return files_hash

    async def _upload(self, step: Instruction, url: str, more: Mapping[str, object]) -> None:
        source = step.args[0]
        archive = await in_thread(
            lambda: self._draft.context.archive(source, follow=step.follow, packed=step.packed)
        )
        try:
            size = await in_thread(lambda: archive.seek(0, 2))
            await in_thread(lambda: archive.seek(0))
            headers = {str(key): str(value) for key, value in more.items()}
            http, path = await self._place(url)
            ask = Ask("PUT", path, {}, {**headers, "Content-Length": str(size)}, self._upload_s)
            answer = await http.call(ask, read_pieces(archive, _PIECE))
        except LinkError as error:
            raise errors.FileUploadException(f"the upload broke off: {error.detail}") from error
        finally:
            archive.close()
        if answer.status >= 300:
            problem = as_object(decode(answer, strict=False)) or {}
            text = problem.get("message", f"status {answer.status}")
            raise errors.FileUploadException(f"the upload was refused: {text}")

    async def _place(self, url: str) -> tuple[Http, str]:
        """Where a link for an upload leads: to the server that gave it, or elsewhere."""
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        own = await self._control.connect()
        base = f"{parts.scheme}://{parts.netloc}"
        if own.origin.socket or base == own.origin.url:
            return own, path
        return Http(Origin(base, proxy=own.origin.proxy)), path

    async def finish(self, info: BuildInfo) -> None:
        """Wait for the end of a build, and tell its log.

        Errors:
            BuildException: it failed.
        """
        offset = 0
        while True:
            status = await _status(self._control, info, offset)
            offset += len(status.log_entries)
            for entry in status.log_entries:
                self._tell(entry)
            if status.log_entries:
                continue
            if status.status is TemplateBuildStatus.READY:
                return
            if status.status is TemplateBuildStatus.ERROR:
                reason = status.reason
                error = errors.BuildException(reason.message if reason else "Build failed")
                raise error.with_traceback(self._draft.trace_of(reason.step if reason else None))
            await sleep(_POLL_S)


async def _status(control: Control, info: BuildInfo, offset: int) -> TemplateBuildStatusResponse:
    path = template_path(info.template_id, f"/builds/{info.build_id}/status")
    query = {"logsOffset": str(offset)}
    answer = await _call(control, errors.BuildException, "GET", path, query=query)
    return parse_status(decode(answer))


async def _ask(
    opts: ApiParams, method: str, path: str, body: Mapping[str, object] | None
) -> object:
    control = Control(find_target(opts))
    try:
        return decode(await _call(control, errors.TemplateException, method, path, body))
    finally:
        await control.close()


async def _call(
    control: Control,
    kind: type[errors.BuildException | errors.TemplateException],
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    query: Mapping[str, str] | None = None,
) -> Answer:
    """A call whose refusals are of one kind, as with E2B."""
    try:
        return await control.call(method, path, body=body, query=query)
    except (
        errors.AuthenticationException,
        errors.RateLimitException,
        errors.TimeoutException,
        errors.UnavailableException,
        errors.UnsupportedException,
    ):
        raise
    except (errors.SandboxException, errors.BuildException) as error:
        raise kind(
            error.message, status_code=error.status_code, code=error.code, hint=error.hint
        ) from error


def _options(
    cpu_count: int | None, memory_mb: int | None, min_free_disk_mb: int | None
) -> dict[str, object]:
    given = {"cpuCount": cpu_count, "memoryMB": memory_mb, "minFreeDiskMb": min_free_disk_mb}
    return {name: value for name, value in given.items() if value is not None}


def _name(name: str | None, alias: str | None) -> str:
    if found := name or alias:
        return found
    raise errors.TemplateException("Name must be provided")


def _tags(tags: str | Sequence[str]) -> list[str]:
    return [tags] if isinstance(tags, str) else list(tags)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _ignore(_: LogEntry) -> None:
    pass
