# Made by tools/make_sync.py from _async/copies.py. Do not edit.
"""Pausing sandboxes, and copies of them: snapshots and forks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from tupper.protocol.connect import as_list, as_object
from tupper.sdk._shared import errors
from tupper.sdk._shared.create import parse_lifetime
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.info import Grant, parse_grant, parse_snapshot, parse_snapshots
from tupper.sdk._shared.lifecycle import snapshot_memory
from tupper.sdk._shared.pages import Pages
from tupper.sdk._shared.types import ApiParams, SnapshotInfo, SnapshotMode
from tupper.sdk._sync.control import Control, decode, sandbox_path, template_path

if TYPE_CHECKING:
    from tupper.sdk._sync.sandbox import Sandbox

SAVE_TIMEOUT_S = 600.0  # gigabytes of memory may have to be written


def pause(
    control: Control,
    sandbox_id: str,
    keep_memory: bool | None,
    mode: SnapshotMode | None,
    *,
    strict: bool,
) -> bool:
    """Pause one; False if it was paused already."""
    body: dict[str, object] = {"memory": snapshot_memory(mode, keep_memory)}
    if strict:
        body["requireHealthyGuest"] = True
    try:
        path = sandbox_path(sandbox_id, "/pause")
        control.call("POST", path, body=body, timeout_s=SAVE_TIMEOUT_S)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error
    except errors.SandboxException as error:
        if error.status_code == 409:
            return False
        raise
    return True


def create_snapshot(
    control: Control, sandbox_id: str, name: str | None, mode: SnapshotMode | None
) -> SnapshotInfo:
    """Save one that goes on."""
    body: dict[str, object] = {"memory": snapshot_memory(mode, None)}
    if name:
        body["name"] = name
    try:
        path = sandbox_path(sandbox_id, "/snapshots")
        answer = control.call("POST", path, body=body, timeout_s=SAVE_TIMEOUT_S)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error
    return parse_snapshot(decode(answer))


def delete_snapshot(control: Control, snapshot_id: str) -> bool:
    """Remove a snapshot; False if there is none."""
    try:
        control.call("DELETE", template_path(snapshot_id))
    except errors.NotFoundException:
        return False
    return True


def fork(
    control: Control, sandbox_id: str, timeout: float | None, count: int | None
) -> list[Grant | Exception]:
    """Copies of one that goes on; for each its grant, or why there is none."""
    body: dict[str, object] = {}
    if timeout is not None:
        body["timeout"] = parse_lifetime(timeout)
    if count is not None:
        body["count"] = count
    try:
        path = sandbox_path(sandbox_id, "/fork")
        answer = control.call("POST", path, body=body, timeout_s=SAVE_TIMEOUT_S)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error
    found: list[Grant | Exception] = []
    for item in as_list(decode(answer)) or ():
        entry = as_object(item) or {}
        failure = as_object(entry.get("error"))
        if failure is None:
            found.append(parse_grant(entry.get("sandbox")))
        else:
            status = failure.get("code")
            found.append(errors.from_control(status if isinstance(status, int) else 500, failure))
    return found


class SnapshotPaginator(Pages):
    """Snapshots, page by page. Made by ``Sandbox.list_snapshots()``.

    Nothing is asked for before :meth:`next_items`.

    Args:
        sandbox_id: only those of this sandbox.
        name: only those with this name or id, perhaps with a tag.
        limit: how many on a page, 1 to 100.
        next_token: where to begin.
        control: whom to ask, if that is known.
        opts: how to reach the server.
    """

    def __init__(
        self,
        sandbox_id: str | None = None,
        name: str | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        *,
        control: Control | None = None,
        **opts: Unpack[ApiParams],
    ) -> None:
        self._control = control
        self._sandbox_id = sandbox_id
        self._name = name
        super().__init__(limit, next_token)
        self._opts = opts

    def next_items(self, **opts: Unpack[ApiParams]) -> list[SnapshotInfo]:
        """The next page, the newest first.

        Errors:
            SandboxException: there is none.
        """
        wanted = {"sandboxID": self._sandbox_id, "name": self._name}
        params = self._place() | {key: value for key, value in wanted.items() if value}
        control = self._control or Control(find_target({**self._opts, **opts}))
        try:
            answer = control.call("GET", "/snapshots", query=params)
        finally:
            if control is not self._control:
                control.close()
        self._advance(answer.headers)
        return parse_snapshots(decode(answer))

    def __iter__(self) -> Iterator[SnapshotInfo]:
        """All of them, over all pages."""
        while self._has_next:
            for info in self.next_items():
                yield info


def pause_by_id(
    cls: type[Sandbox],
    sandbox_id: str,
    keep_memory: bool | None = None,
    *,
    mode: SnapshotMode | None = None,
    strict: bool = False,
    **opts: Unpack[ApiParams],
) -> bool:
    """Lay a sandbox on disk. Returns False if it was paused already."""
    control = Control(find_target(opts))
    try:
        return pause(control, sandbox_id, keep_memory, mode, strict=strict)
    finally:
        control.close()


def create_snapshot_by_id(
    cls: type[Sandbox],
    sandbox_id: str,
    name: str | None = None,
    *,
    mode: SnapshotMode | None = None,
    **opts: Unpack[ApiParams],
) -> SnapshotInfo:
    """Save a sandbox, which goes on."""
    control = Control(find_target(opts))
    try:
        return create_snapshot(control, sandbox_id, name, mode)
    finally:
        control.close()


def list_snapshots_of_all(
    cls: type[Sandbox],
    sandbox_id: str | None = None,
    limit: int | None = None,
    next_token: str | None = None,
    name: str | None = None,
    **opts: Unpack[ApiParams],
) -> SnapshotPaginator:
    """All snapshots, or those of a sandbox, page by page."""
    return SnapshotPaginator(sandbox_id, name, limit, next_token, **opts)


def fork_by_id(
    cls: type[Sandbox],
    sandbox_id: str,
    timeout: float | None = None,
    count: int | None = None,
    logger: logging.Logger | None = None,
    **opts: Unpack[ApiParams],
) -> list[Sandbox | Exception]:
    """Start copies of a sandbox, which goes on."""
    control = Control(find_target(opts))
    made = fork(control, sandbox_id, timeout, count)
    return [one if isinstance(one, Exception) else cls(control, one) for one in made]
