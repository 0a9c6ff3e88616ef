"""Ports of sandboxes on the host's loopback."""

from __future__ import annotations

import errno

from tupper.core.errors import AlreadyExists
from tupper.engine.parts import Parts
from tupper.engine.sandbox import Sandbox

LOOPBACK = "127.0.0.1"


async def publish(sandbox: Sandbox, parts: Parts, guest_port: int, host_port: int) -> int:
    """Listen on the host for a port inside; returns the host's port. The caller saves the record.

    Raises:
        AlreadyExists: the host's port is taken.
    """
    have = sandbox.record.ports.get(guest_port)
    if guest_port in sandbox.forwards and have and host_port in (0, have):
        return have
    address = sandbox.record.agent
    if address is None:
        sandbox.agent  # noqa: B018 - raises with the reason
        raise AssertionError
    forward = parts.forward()
    try:
        port = await forward.open(address, sandbox.record.token, guest_port, LOOPBACK, host_port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyExists(f"port {host_port} of {LOOPBACK} is in use") from error
        raise
    if old := sandbox.forwards.pop(guest_port, None):
        old.close()
    sandbox.forwards[guest_port] = forward
    sandbox.change(ports={**sandbox.record.ports, guest_port: port})
    return port
