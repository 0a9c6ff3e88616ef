"""Addresses on the host, by one blocking call for both halves: ``get_host`` is no coroutine.

Source: the signature of E2B's ``get_host``; ``docs/design/interfaces.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tupper.core.errors import GuestMisbehaved
from tupper.protocol.connect import as_object, parse_json
from tupper.sdk._io_sync import Http
from tupper.sdk._shared import errors
from tupper.sdk._shared.endpoint import Target
from tupper.sdk._shared.link import Ask, LinkError


def publish_port(target: Target, sandbox_id: str, port: int) -> str:
    """Make a port inside reachable.

    Args:
        target: the control plane.
        sandbox_id: whose port.
        port: inside.

    Returns:
        ``host:port``. The same for the same port.

    Errors:
        SandboxNotFoundException: the sandbox has ended.
    """
    path = f"/tupper/v1/sandboxes/{sandbox_id}/ports"
    answer = _post(target, path, {"port": port, "host": 0}, f"publish port {port}")
    address = answer.get("address")
    if not isinstance(address, str):
        raise errors.ProtocolException(f"the server did not say where port {port} is")
    return address


def open_links(target: Target) -> str:
    """The beginning of links to files, for a control plane on a unix socket."""
    url = _post(target, "/tupper/v1/links", {}, "open an address for links").get("url")
    if not isinstance(url, str):
        raise errors.ProtocolException("the server did not say where links lead")
    return url


def _post(
    target: Target, path: str, body: Mapping[str, object], purpose: str
) -> Mapping[str, object]:
    ask = Ask("POST", path, {}, {"Content-Type": "application/json"}, target.request_timeout_s)
    http = Http(target.origin())
    try:
        answer = http.call(ask, json.dumps(body).encode())
    except LinkError as error:
        raise errors.UnavailableException(f"cannot {purpose}: {error.detail}") from error
    finally:
        http.close()
    try:
        found = as_object(parse_json(answer.body, "the server's answer"))
    except GuestMisbehaved:
        found = None
    if answer.status >= 300:
        raise errors.from_control(answer.status, found)
    return found or {}
