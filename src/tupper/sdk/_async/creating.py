"""Making a sandbox: here, or on E2B's cloud where that was named."""

from __future__ import annotations

from collections.abc import Mapping

from tupper.core import log
from tupper.core.errors import TupperError
from tupper.protocol.connect import as_list, as_object
from tupper.sdk import _io_async as io
from tupper.sdk._async.control import Control, decode, sandbox_path
from tupper.sdk._shared import cloud, errors
from tupper.sdk._shared.create import Creation, render_creation
from tupper.sdk._shared.endpoint import (
    Target,
    current_config,
    find_cloud_target,
    find_target,
    place_of,
)
from tupper.sdk._shared.info import Grant, parse_grant
from tupper.sdk._shared.types import ApiParams

CREATE_TIMEOUT_S = 1800.0  # an image may have to be pulled or a template built first
_DOCTOR_S = 120.0


async def create(
    creation: Creation, opts: ApiParams, *, profile: str | None, idempotency_key: str | None
) -> tuple[Control, Grant]:
    """Make a sandbox; whom to ask about it, and what that granted.

    Args:
        creation: the arguments of the call.
        opts: how to reach the server.
        profile: of the configuration, whose values fill what was not given.
        idempotency_key: a second create with the same key gives the same sandbox.
    """
    try:
        wanted = creation.with_defaults(current_config().create_defaults(profile))
        may_fall_back = cloud.check_fallback(wanted.fallback)
        target = find_target(opts, backend=wanted.backend)
        body = cloud.render(wanted) if target.cloud else render_creation(wanted)
    except TupperError as error:
        raise errors.from_core(error) from error
    try:
        return await _create(target, body, opts, idempotency_key)
    except errors.UnavailableException as error:
        if not may_fall_back or target.cloud or not await _has_no_backend(target, error):
            raise
        elsewhere = find_cloud_target(place_of(opts))
        body = cloud.render(
            wanted.without_backend(), f"no backend can be used here: {error.message}"
        )
        host = elsewhere.cloud.host if elsewhere.cloud else ""
        log.notice(
            f"tupper: no backend can be used on this host, so this sandbox is made on E2B's cloud, "
            f"{host}, as fallback=['e2b'] allows"
        )
    return await _create(elsewhere, body, opts, idempotency_key)


async def _has_no_backend(target: Target, error: errors.UnavailableException) -> bool:
    """Whether nothing at all can be used there; that one is refused, or too weak, is not that."""
    if error.code != "backend_unavailable":
        return False
    control = Control(target)
    try:
        answer = await control.call("GET", "/tupper/v1/doctor", timeout_s=_DOCTOR_S)
    finally:
        await control.close()
    probes = as_list((as_object(decode(answer)) or {}).get("backends")) or ()
    return not any((as_object(probe) or {}).get("usable") for probe in probes)


async def _create(
    target: Target, body: Mapping[str, object], opts: ApiParams, idempotency_key: str | None
) -> tuple[Control, Grant]:
    control = Control(target)
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
    limit_s = opts.get("request_timeout") or CREATE_TIMEOUT_S

    async def make() -> Grant:
        answer = await control.call(
            "POST", "/v2/sandboxes", body=body, timeout_s=limit_s, headers=headers
        )
        return parse_grant(control.read(answer))

    async def undo(grant: Grant) -> None:
        await control.call("DELETE", sandbox_path(grant.sandbox_id))

    try:
        await _announce_build(control, body)
        return control, await io.guarded(make, undo)
    except Exception:
        await control.close()
        raise


async def _announce_build(control: Control, body: Mapping[str, object]) -> None:
    """Say so when a create will take a minute or more, because its template is not built yet."""
    template = str(body["templateID"])
    if "image" not in (as_object(body.get("tupper")) or {}) and await control.has_to_build(
        template
    ):
        log.notice(
            f"tupper: building the template {template} first, which takes a minute or more; "
            "`tupper setup` does it ahead"
        )
