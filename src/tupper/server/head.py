"""The head of an HTTP request, as far as routing needs it; pure functions over bytes.

The rest of the request is never looked at: it belongs to the sandbox.

Source: RFC 9112, sections 2.2, 3 and 5; the edge's rules are in the E2B wire notes, 1.2 and 4.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import unquote

from tupper.core.ids import is_sandbox_id
from tupper.protocol.e2b import ENVD_PORT
from tupper.protocol.tunnel import CARRY_HEADER

MAX_HEAD = 64 * 1024
_LINE = re.compile(rb"([A-Z][A-Z_-]{0,30}) ([!-~]+) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_HOST = re.compile(r"(\d{1,5})-(i[a-z0-9]{20})\.[a-z0-9.-]+(?::\d+)?", re.IGNORECASE)
# The host's own calls to the agent. Nobody reaches them through us.
_INTERNAL = frozenset(
    {"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade"}
)


@dataclass(frozen=True, slots=True)
class Head:
    """The request line and the fields.

    Args:
        method: as sent.
        target: as sent.
        fields: (name, value) in order, names as sent.
    """

    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]

    def values(self, name: bytes) -> list[bytes]:
        """The values of all fields of this name, lower case."""
        return [value for key, value in self.fields if key.lower() == name]

    @property
    def path(self) -> str:
        """The target without its query, as sent."""
        return self.target.partition(b"?")[0].decode("ascii")

    @property
    def query(self) -> str:
        """The query, as sent."""
        return self.target.partition(b"?")[2].decode("ascii")

    @property
    def upgrades(self) -> bool:
        """Whether the connection shall become something else."""
        tokens = b",".join(self.values(b"connection")).lower()
        return b"upgrade" in [token.strip() for token in tokens.split(b",")]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request for a sandbox goes.

    Args:
        sandbox_id: of the sandbox, if it has the form of one.
        port: inside; 49983 is the agent.
        complaint: why it goes nowhere; empty if it goes.
    """

    sandbox_id: str
    port: int
    complaint: str = ""


def parse_head(raw: bytes) -> Head | None:
    """The head of a request; None for what is not plainly HTTP/1.1.

    Args:
        raw: up to and with the empty line.
    """
    first, *lines = raw[:-4].split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        return None
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            return None
        fields.append((field[1], field[2]))
    return Head(match[1], match[2], tuple(fields))


def find_destination(head: Head) -> Destination | None:
    """Which sandbox a request is for; None if it is for the control plane.

    The headers win; else a host name of the form ``<port>-<id>.<domain>`` counts.
    """
    ids, ports = head.values(b"e2b-sandbox-id"), head.values(b"e2b-sandbox-port")
    if ids or ports:
        if len(ids) != 1 or len(ports) != 1:
            return Destination("", 0, "missing header" if len(ids) + len(ports) < 2 else "header")
        return _destination(ids[0].decode("latin-1"), ports[0].decode("latin-1"))
    hosts = head.values(b"host")
    match = _HOST.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
    return _destination(match[2].lower(), match[1]) if match else None


def _destination(sandbox_id: str, port: str) -> Destination:
    sandbox_id = sandbox_id.split("-", 1)[0]
    if not is_sandbox_id(sandbox_id):
        return Destination("", 0, "Invalid sandbox ID")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return Destination(sandbox_id, 0, "Invalid port")
    return Destination(sandbox_id, int(port))


def is_internal(head: Head, port: int) -> bool:
    """Whether the request is one that only the host may send to the agent."""
    # However it is spelled: the agent's router would clean the path, too.
    path = re.sub(r"/+", "/", normpath("/" + unquote(head.path)))
    return port == ENVD_PORT and path in _INTERNAL


def render_head(head: Head, *, carry: str = "") -> bytes:
    """The head for the sandbox: one request per connection, unless it upgrades.

    Args:
        head: as the client sent it.
        carry: a name for the connection, which is ours to give.
    """
    lines = [b"%s %s HTTP/1.1" % (head.method, head.target)]
    name = CARRY_HEADER.encode()
    hop = () if head.upgrades else (b"connection", b"keep-alive", b"proxy-connection")
    dropped = (*hop, name.lower())
    lines += [b"%s: %s" % field for field in head.fields if field[0].lower() not in dropped]
    if carry:
        lines.append(b"%s: %s" % (name, carry.encode()))
    if not head.upgrades:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"
