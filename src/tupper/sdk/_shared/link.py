"""What the two transports have in common: where to connect, what an answer is, how it can fail.

The transports know nothing of sandboxes. They fail with a :class:`LinkError`, whose kind says what
is certain: with ``REFUSED`` nothing was sent, so the call may be made again elsewhere; ``SILENT``
means that the other side did not answer in time; ``BROKEN`` that it went away in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

BODY_MAX = 256 * 1024 * 1024  # bytes of an answer that is held in memory
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 60.0


class Trouble(Enum):
    """The kinds of failure of a connection."""

    REFUSED = "refused"
    SILENT = "silent"
    BROKEN = "broken"


class LinkError(Exception):
    """The connection failed.

    Args:
        trouble: how.
        detail: the transport's text.
    """

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Origin:
    """One HTTP server.

    Args:
        url: its base URL; for a unix socket any host name.
        socket: the path of its unix socket; empty for TCP.
        headers: sent with every request.
        proxy: the proxy to use; empty for the environment's. Unix sockets and loopback addresses
            never use one.
    """

    url: str
    socket: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    proxy: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, so that no proxy can lie between."""
        host = self.url.partition("://")[2].partition("/")[0]
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        loopback = name in ("localhost", "[::1]") or name.endswith(".localhost")
        return bool(self.socket) or loopback or name.startswith("127.")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Args:
        status: the HTTP status.
        headers: names in lower case.
        body: all of it.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Ask:
    """A request without its body.

    Args:
        method: of HTTP.
        path: below the origin, with a leading slash, encoded.
        query: parameters, not yet encoded.
        headers: on top of the origin's.
        timeout_s: seconds for each step of a stream, or for the whole of a buffered call; None
            for no limit.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout_s: float | None = REQUEST_TIMEOUT_S
