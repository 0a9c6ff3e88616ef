"""Publishing a port. One blocking call for both halves: ``get_host`` is no coroutine in either.

Source: the signature of E2B's ``get_host``; ``docs/design/interfaces.md``.
"""

from __future__ import annotations

import json

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
    http = Http(target.origin())
    path = f"/tupper/v1/sandboxes/{sandbox_id}/ports"
    ask = Ask("POST", path, {}, {"Content-Type": "application/json"}, target.request_timeout_s)
    try:
        answer = http.call(ask, json.dumps({"port": port, "host": 0}).encode())
    except LinkError as error:
        raise errors.UnavailableException(f"cannot publish port {port}: {error.detail}") from error
    finally:
        http.close()
    try:
        body = as_object(parse_json(answer.body, "the server's answer"))
    except GuestMisbehaved:
        body = None
    if answer.status >= 300:
        raise errors.from_control(answer.status, body)
    address = (body or {}).get("address")
    if not isinstance(address, str):
        raise errors.ProtocolException(f"the server did not say where port {port} is")
    return address
