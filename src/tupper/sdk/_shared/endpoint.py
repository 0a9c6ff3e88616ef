"""Which server to talk to: from arguments, the environment, the configuration, or the local one.

A URL is ``unix:/path``, ``http://…``, ``https://…``, or ``e2b:`` for E2B's cloud. Without any, the
address file of the local background process says where that listens.

Source: ``docs/design/interfaces.md``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tupper.core.config import Config, load_config
from tupper.core.paths import Paths, find_paths
from tupper.sdk._shared.cloud import NAME, URL, Cloud, find_cloud
from tupper.sdk._shared.errors import InvalidArgumentException, UnsupportedException
from tupper.sdk._shared.link import REQUEST_TIMEOUT_S, Origin
from tupper.sdk._shared.types import ApiParams

AGENT_PORT = "49983"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the control plane is and how to treat it.

    Args:
        url: as configured; empty for the local background process.
        api_key: for TCP.
        paths: of the local one.
        request_timeout_s: seconds for a call; None for no limit.
        retries: how often a call is made again when the server says that it is busy.
        proxy: for a server elsewhere; empty for the environment's.
        headers: sent with every control call.
        cloud: E2B's, if that is what it is.
    """

    url: str
    api_key: str
    paths: Paths
    request_timeout_s: float | None
    retries: int
    proxy: str
    headers: tuple[tuple[str, str], ...]
    cloud: Cloud | None = None

    @property
    def is_own_process(self) -> bool:
        """Whether it is the background process that we may start."""
        return not self.url

    def refuse_cloud(self, what: str) -> None:
        """Refuse what only a tupper can do.

        Errors:
            UnsupportedException: this is E2B's cloud.
        """
        if self.cloud is not None:
            raise UnsupportedException(f"{what}: E2B's cloud has nothing for that")

    def origin(self) -> Origin:
        """Where it listens now. For the local one: what its address file says.

        Errors:
            OSError: there is no address file.
        """
        url = self.url or self.paths.address_file.read_text().strip()
        headers = dict(self.headers)
        if " " in url:  # the local one on TCP: "http://127.0.0.1:PORT KEY"
            url, _, key = url.partition(" ")
            headers["X-API-KEY"] = key
        if self.api_key:
            headers["X-API-KEY"] = self.api_key
        return parse_url(url, headers, self.proxy)


def parse_url(url: str, headers: Mapping[str, str], proxy: str = "") -> Origin:
    """An origin from ``unix:/path`` or a URL."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise InvalidArgumentException(f"{url!r}: a unix socket needs an absolute path")
        return Origin("http://tupper", path, headers)
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentException(
            f"{url!r} is no address of a server", hint="use unix:/path, http://… or https://…"
        )
    return Origin(url.rstrip("/"), "", headers, proxy)


def find_target(opts: ApiParams, *, backend: str | None = None) -> Target:
    """Decide where to send control calls.

    Args:
        opts: of the call; they win over ``TUPPER_URL`` and ``TUPPER_API_KEY``, and those over
            the configuration file.
        backend: of a create; ``e2b`` is a place of its own.
    """
    paths = find_paths()
    config = current_config(paths)
    url = opts.get("api_url") or config.url
    if backend == NAME or url == URL:
        return find_cloud_target(opts)
    return _target(opts, paths, url, opts.get("api_key") or config.api_key)


def find_cloud_target(opts: ApiParams) -> Target:
    """E2B's cloud."""
    cloud = find_cloud(opts)
    return replace(_target(opts, find_paths(), cloud.api_url, cloud.api_key), cloud=cloud)


def place_of(opts: ApiParams) -> ApiParams:
    """What of a call holds wherever it goes: not the address and the key of its first server."""
    kept = opts.copy()
    kept["api_url"] = kept["api_key"] = kept["domain"] = kept["sandbox_url"] = None
    return kept


def _target(opts: ApiParams, paths: Paths, url: str, api_key: str) -> Target:
    timeout = opts.get("request_timeout")
    retries = opts.get("retries")
    headers = {**(opts.get("headers") or {}), **(opts.get("api_headers") or {})}
    return Target(
        url=url,
        api_key=api_key,
        paths=paths,
        request_timeout_s=REQUEST_TIMEOUT_S if timeout is None else timeout or None,
        retries=3 if retries is None else retries,
        proxy=str(opts.get("proxy") or ""),
        headers=tuple(headers.items()),
    )


def current_config(paths: Paths | None = None) -> Config:
    """The configuration of this process; read again when a file or the environment changes."""
    paths = paths or find_paths()
    relevant = tuple(sorted(item for item in os.environ.items() if item[0].startswith("TUPPER_")))
    return _load(paths, relevant, str(Path.cwd()), Config.fingerprint(paths))


@lru_cache(maxsize=4)
def _load(
    paths: Paths, environ: tuple[tuple[str, str], ...], cwd: str, _fingerprint: object
) -> Config:
    return load_config(paths, environ=dict(environ), cwd=cwd)
