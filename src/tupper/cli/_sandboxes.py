"""Sandboxes as the verbs use them: found by id, unique beginning of an id, or name."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from tupper import (
    AsyncSandbox,
    ConflictException,
    Sandbox,
    SandboxInfo,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TupperError,
)
from tupper.cli import _output
from tupper.sdk import _daemon
from tupper.sdk._shared import cloud
from tupper.sdk._shared.create import DEFAULT_TEMPLATE, Creation
from tupper.sdk._shared.endpoint import current_config, find_target

# Connecting extends a life that would end sooner than this, so that looking does not.
_NO_EXTENSION_S = 1
_COMPLETION_S = 2.0
_CLOUD_LIFE_S = 3600  # the longest that everybody may have there


def attach(sandbox: str) -> Sandbox:
    """A handle on a sandbox that runs.

    Errors:
        SandboxNotFoundException: none of this name runs; the hint names close ones.
        ConflictException: it is paused.
    """
    try:
        _refuse_paused(Sandbox.get_info(sandbox), sandbox)
        return Sandbox.connect(sandbox_id=sandbox, timeout=_NO_EXTENSION_S)
    except SandboxNotFoundException as missing:
        raise _with_guess(missing, sandbox) from missing


async def attach_async(sandbox: str) -> AsyncSandbox:
    """:func:`attach` for verbs that do several things at once."""
    try:
        _refuse_paused(await AsyncSandbox.get_info(sandbox), sandbox)
        return await AsyncSandbox.connect(sandbox_id=sandbox, timeout=_NO_EXTENSION_S)
    except SandboxNotFoundException as missing:
        raise _with_guess(missing, sandbox) from missing


def _refuse_paused(info: SandboxInfo, sandbox: str) -> None:
    """Attaching would resume it, for a second."""
    if info.state is SandboxState.PAUSED:
        hint = f"tupper resume {sandbox}"
        raise ConflictException(f"sandbox {sandbox} is paused", code="conflict", hint=hint)


def _with_guess(missing: SandboxNotFoundException, sandbox: str) -> SandboxNotFoundException:
    """The same error with what was probably meant as its hint."""
    import difflib  # noqa: PLC0415 - only on this path

    known = [name for info in all_running() for name in (info.sandbox_id, info.name) if name]
    near = difflib.get_close_matches(sandbox, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "tupper list shows what runs"
    return SandboxNotFoundException(missing.message, code=missing.code, hint=missing.hint or hint)


def create_with_progress(
    arguments: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
    idle_timeout_s: float | None = None,
    bound: bool = False,
    quiet: bool = False,
) -> Sandbox:
    """Create a sandbox; say what is going on when that takes longer than a second.

    Args:
        arguments: of ``Sandbox.create``.
        timeout_s: its life; ``math.inf`` for ever, None for the default.
        idle_timeout_s: its life without activity.
        bound: whether it ends with this process, however that ends.
        quiet: show nothing.
    """
    wanted = _wanted(arguments)
    leaves = wanted.backend == cloud.NAME or bool(wanted.fallback)
    extra: dict[str, Any] = {}
    if timeout_s is not None:
        extra["timeout"] = timeout_s if math.isinf(timeout_s) else math.ceil(timeout_s)
    if idle_timeout_s is not None:
        extra["idle_timeout"] = idle_timeout_s
    if bound and leaves:  # E2B's cloud knows no owner and no life without an end
        extra["timeout"] = min(extra.get("timeout", math.inf), _CLOUD_LIFE_S)
    elif bound:
        extra["owner"] = "process"
    with _output.progress(quiet=quiet) as bar:
        if not leaves:
            prepare_source(wanted, bar)
        made = Sandbox.create(**arguments, **extra)
    if leaves and made.get_info().backend == cloud.NAME:
        os.environ["TUPPER_URL"] = cloud.URL  # where this process finds it from now on
    return made


def _wanted(arguments: Mapping[str, Any]) -> Creation:
    """What decides where a sandbox is made, and from what."""
    names = ("image", "template", "backend", "fallback")
    rest = {key: value for key, value in arguments.items() if key in names}
    defaults = current_config().create_defaults(arguments.get("profile"))
    wanted = Creation(**rest).with_defaults(defaults)
    return replace(wanted, backend=cloud.NAME) if find_target({}).cloud else wanted


def prepare_source(wanted: Creation, bar: _output.Progress) -> None:
    """Get what the sandbox starts from before it needs it, to show how far that is."""
    from tupper.cli import _control  # noqa: PLC0415 - not for the other verbs

    template = wanted.template or DEFAULT_TEMPLATE
    if wanted.image:
        _control.pull_image(wanted.image, bar)
    elif _control.has_to_build(template):
        _control.build_template({"name": template}, bar, log=None)


def all_running(labels: Mapping[str, str] | None = None) -> list[SandboxInfo]:
    """Everything that runs, with this metadata."""
    return _all(SandboxQuery(metadata=dict(labels) if labels else None))


def all_ended(labels: Mapping[str, str] | None = None) -> list[SandboxInfo]:
    """Everything that ended during the last day."""
    return _all(SandboxQuery(metadata=dict(labels) if labels else None, state=[SandboxState.ENDED]))


def _all(query: SandboxQuery) -> list[SandboxInfo]:
    pages = Sandbox.list(query=query)
    found: list[SandboxInfo] = []
    while pages.has_next:
        found += pages.next_items()
    return found


def words_for_completion() -> dict[str, str]:
    """Names and ids of what is there → what a shell may say about them; starts nothing."""
    target = find_target({"request_timeout": _COMPLETION_S, "retries": 0})
    if target.is_own_process and not _daemon.answers(target.paths):
        return {}
    try:
        pages = Sandbox.list(request_timeout=_COMPLETION_S, retries=0)
        infos = pages.next_items()
    except TupperError:
        return {}
    names = {info.name: info.sandbox_id for info in infos if info.name not in {None, ""}}
    ids = {info.sandbox_id: f"{info.template_id}, {info.state.value}" for info in infos}
    templates = {info.template_id for info in infos}
    return {str(name): of for name, of in names.items() if name not in templates} | ids


def info_of(sandbox: str) -> SandboxInfo:
    """All that is known about a sandbox, also about one that has ended."""
    from tupper.cli import _control  # noqa: PLC0415 - not for the other verbs

    try:
        return _control.info_of(sandbox)
    except SandboxNotFoundException as missing:
        raise _with_guess(missing, sandbox) from missing


def is_running(sandbox: str) -> bool:
    """Whether it still runs."""
    try:
        return Sandbox.get_info(sandbox).state is not SandboxState.ENDED
    except SandboxNotFoundException:
        return False


def kill_one(sandbox: str) -> bool:
    """End a sandbox; whether it ran."""
    return Sandbox.kill(sandbox)


def info_as_json(info: SandboxInfo) -> dict[str, object]:
    """All fields, in the SDK's names; nothing secret is among them."""
    values = {item.name: getattr(info, item.name) for item in fields(info)}
    return {key: value.value if isinstance(value, Enum) else value for key, value in values.items()}
