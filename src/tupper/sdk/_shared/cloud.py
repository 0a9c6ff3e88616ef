"""E2B's own cloud as the place of a sandbox, for those who ask for it by name. No I/O.

``backend="e2b"`` (of a call or a profile) makes one sandbox there; the address ``e2b:`` in the
place of a server's makes everything go there. Only what E2B's public API has is sent, its answers
are read without what a tupper would add, and keys of tupper servers never go along, nor the other
way round.

Source: wire specification 1.1 (settings), 1.2 (where a sandbox's agent is), 4.2 (create).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tupper.sdk._shared.create import Creation, render_creation
from tupper.sdk._shared.errors import (
    AuthenticationException,
    InvalidArgumentException,
    UnsupportedException,
)
from tupper.sdk._shared.link import Origin
from tupper.sdk._shared.types import ApiParams, SandboxInfo

NAME = "e2b"
URL = "e2b:"
REASON = "tupper-fallback"
"""The metadata that says why a sandbox is there although it was not asked to be."""

_DOMAIN = "e2b.app"
_HOSTED = frozenset({"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"})
_REASON_MAX = 200
# What a create can ask of a tupper and not of E2B's cloud.
_OURS = (
    "image", "min_isolation", "name", "cpus", "memory", "disk", "pids", "mounts", "volumes",
    "ports", "idle_timeout", "workdir", "user", "backend_options", "allow_host_ports", "owner",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cloud:
    """How to reach it.

    Args:
        api_url: of the control plane.
        api_key: of E2B's.
        domain: that host names of sandboxes end with.
        sandbox_url: of all sandboxes' agents; empty for what the domain says.
    """

    api_url: str
    api_key: str
    domain: str
    sandbox_url: str

    @property
    def host(self) -> str:
        """For people."""
        return urlsplit(self.api_url).netloc

    def origin(
        self, sandbox_id: str, domain: str, port: str, headers: Mapping[str, str], proxy: str
    ) -> Origin:
        """Where a port of a sandbox is reached.

        Args:
            sandbox_id, port: which.
            domain: that the control plane named; empty for the configured one.
            headers: sent with every request.
            proxy: on the way.
        """
        named = domain or self.domain
        if self.sandbox_url:
            url = self.sandbox_url
        elif named in _HOSTED:
            url = f"https://sandbox.{named}"
        else:
            url = f"https://{port}-{sandbox_id}.{named}"
        routed = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": port}
        return Origin(url.rstrip("/"), "", {**headers, **routed}, proxy)

    def mark(self, info: SandboxInfo) -> SandboxInfo:
        """Say where a sandbox is, and why if it was not asked to be there."""
        metadata = dict(info.metadata)
        reason = metadata.pop(REASON, None)
        mechanism = f"E2B's cloud at {self.host}"
        return replace(
            info, backend=NAME, mechanism=mechanism, metadata=metadata, fallback_reason=reason
        )


def find_cloud(opts: ApiParams, environ: Mapping[str, str] | None = None) -> Cloud:
    """The cloud of E2B's settings.

    Errors:
        AuthenticationException: there is no key.
        InvalidArgumentException: an address that is none.
    """
    env = os.environ if environ is None else environ
    domain = opts.get("domain") or env.get("E2B_DOMAIN") or _DOMAIN
    given = opts.get("api_url") or ""
    api_url = given if given and given != URL else env.get("E2B_API_URL")
    key = opts.get("api_key") or env.get("E2B_API_KEY")
    if not key:
        raise AuthenticationException(
            "E2B's cloud asks for a key", hint="set E2B_API_KEY; it is on E2B's dashboard"
        )
    found = Cloud(
        api_url=(api_url or f"https://api.{domain}").rstrip("/"),
        api_key=key,
        domain=domain,
        sandbox_url=opts.get("sandbox_url") or env.get("E2B_SANDBOX_URL") or "",
    )
    for url in (found.api_url, found.sandbox_url or found.api_url):
        if not url.startswith(("http://", "https://")):
            raise InvalidArgumentException(f"{url!r} is no address of E2B's cloud")
    return found


def check_fallback(names: Sequence[str] | None) -> bool:
    """Whether a create may fall back to the cloud.

    Errors:
        InvalidArgumentException: to something else.
    """
    if isinstance(names, str) or any(name != NAME for name in names or ()):
        raise InvalidArgumentException(f"fallback={names!r}: it is a list that may name {NAME!r}")
    return bool(names)


def render(creation: Creation, reason: str = "") -> dict[str, object]:
    """The body of a create there.

    Args:
        creation: the arguments.
        reason: why it is made there; empty if that was asked for.

    Errors:
        UnsupportedException: an argument that E2B's cloud has nothing for.
    """
    given = [name for name in _OURS if getattr(creation, name)]
    if creation.timeout == math.inf:
        given.append("timeout=math.inf")
    if given:
        raise UnsupportedException(
            f"create: {', '.join(given)}: not on E2B's cloud", hint="leave it out for backend 'e2b'"
        )
    if reason:
        metadata = {**(creation.metadata or {}), REASON: reason[:_REASON_MAX]}
        creation = replace(creation, metadata=metadata)
    # Sandboxes there always have a token, and the backend is the place itself.
    body = render_creation(replace(creation, backend=None, secure=None))
    body.pop("tupper", None)
    return body
