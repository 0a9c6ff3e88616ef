"""The head of a tunnel: one HTTP/1.1 request that upgrades to raw bytes. No I/O.

``GET /tupper/tunnel?port=N`` with ``Upgrade: tcp`` is answered ``101 Switching Protocols``, after
which the connection is the port's, both ways, each half closed on its own; or by an ordinary error:
502 when nothing listens at the port, 401 for a wrong token.

Source: RFC 9110, 7.8 (Upgrade); RFC 9112, 2 to 5 (message syntax).
"""

from __future__ import annotations

from dataclasses import dataclass

from tupper.core.errors import GuestMisbehaved

AGENT_PORT = 49983  # the agent's own port, in addresses that name one
_HEAD_MAX = 16 * 1024
# Names a connection of a client that takes part in changing the socket below it.
CARRY_HEADER = "Tupper-Carry"


def render_request(port: int, token: str, *, carry: str = "") -> bytes:
    """The request for a tunnel to a port inside.

    Args:
        port: inside.
        token: of the sandbox.
        carry: the name by which it can be continued after a snapshot; empty for none.
    """
    name = f"{CARRY_HEADER}: {carry}\r\n" if carry else ""
    return (
        f"GET /tupper/tunnel?port={port} HTTP/1.1\r\nHost: agent\r\n{name}"
        f"X-Access-Token: {token}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    ).encode()


def render_continuation(carry: str, token: str) -> bytes:
    """The request that continues a connection which a snapshot has interrupted."""
    return (
        f"POST /tupper/carry HTTP/1.1\r\nHost: agent\r\n{CARRY_HEADER}: {carry}\r\n"
        f"X-Access-Token: {token}\r\nContent-Length: 0\r\n"
        "Connection: Upgrade\r\nUpgrade: tupper-carry\r\n\r\n"
    ).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of the answer.

    Args:
        status: 101 when the tunnel is open.
        rest: bytes after the head; they are the port's already.
    """

    status: int
    rest: bytes


class ReplyParser:
    """Takes the bytes of an answer until its head is whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Reply | None:
        """Take the next bytes; returns the head once it is there.

        Errors:
            GuestMisbehaved: not HTTP/1.1, or a head above 16 KiB.
        """
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_MAX:
                raise GuestMisbehaved(f"tunnel: a head of more than {_HEAD_MAX} bytes")
            return None
        line = bytes(self._buffer[: self._buffer.find(b"\r\n")])
        version, _, rest = line.partition(b" ")
        status = rest[:3]
        if version != b"HTTP/1.1" or not status.isdigit() or len(status) != 3:
            raise GuestMisbehaved("tunnel: the answer is not HTTP/1.1")
        return Reply(int(status), bytes(self._buffer[end + 4 :]))
