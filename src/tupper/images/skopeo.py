"""Running skopeo: the only part that speaks to registries and to a local Docker.

Images are copied into a ``dir:`` destination, which keeps manifests and blobs as they are: layers
stay compressed however they were, and odd media types survive. One manifest is copied, the one
that we chose, so no other platform's blobs travel.

Credentials come from the usual files and are never on a command line.

Source: skopeo-copy(1), skopeo-inspect(1), containers-auth.json(5), containers-policy.json(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tupper.core.errors import ImageNotFound, ImagePullFailed, ProgramFailed, ProgramNotFound
from tupper.core.process import minimal_env, run

INSPECT_TIMEOUT_S = 120.0
COPY_TIMEOUT_S = 3600.0
_PASSED = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
)  # fmt: skip
_ABSENT = re.compile(
    r"manifest unknown|name unknown|not found|does not exist|no such image"
    r"|repository name not known|status(?: code)?:? 404",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"unauthorized|authentication required|access denied|denied:|invalid username|status:? 40[13]",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"connection refused|no such host|i/o timeout|network is unreachable|no route to host"
    r"|server misbehaving|context deadline exceeded|TLS handshake|connection reset|lookup ",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')


class Skopeo:
    """How to call skopeo for one source.

    Args:
        tls_verify: false only for registries on this machine.
    """

    def __init__(self, *, tls_verify: bool = True) -> None:
        self._tls_verify = tls_verify

    async def inspect_raw(self, source: str, name: str) -> bytes:
        """The manifest or index as the source has it, byte for byte.

        Args:
            source: in skopeo's syntax.
            name: for the error's text.

        Raises:
            ImageNotFound, ImagePullFailed, ProgramNotFound.
        """
        argv = ["skopeo", *_policy(), "inspect", "--raw", *self._options("--tls-verify"), source]
        try:
            done = await run(argv, timeout_s=INSPECT_TIMEOUT_S, env=environment())
        except ProgramFailed as error:
            raise translate(error, name) from error
        return done.stdout

    async def copy(
        self, source: str, target: Path, name: str, *, on_line: Callable[[str], None] | None = None
    ) -> None:
        """Copy one image into a directory that does not exist yet.

        Raises:
            ImageNotFound, ImagePullFailed, ProgramNotFound.
        """
        argv = ["skopeo", *_policy(), "copy", *self._options("--src-tls-verify")]
        argv += [source, f"dir:{target}"]
        try:
            # skopeo unpacks archives into TMPDIR; ours is on the store's disk and is cleaned up.
            env = environment() | {"TMPDIR": str(target.parent)}
            await run(argv, timeout_s=COPY_TIMEOUT_S, env=env, on_line=on_line)
        except ProgramFailed as error:
            raise translate(error, name) from error

    def _options(self, tls_flag: str) -> list[str]:
        return [] if self._tls_verify else [f"{tls_flag}=false"]


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What skopeo sees: proxies, certificate authorities, and where credentials are.

    Without ``REGISTRY_AUTH_FILE`` skopeo looks into ``$XDG_RUNTIME_DIR/containers/auth.json`` and
    Docker's file by itself; ``~/.config/containers/auth.json`` it reads only on other systems, so
    it is named here when the first does not exist.
    """
    env = os.environ if environ is None else environ
    passed = {key: env[key] for key in _PASSED if key in env}
    if "REGISTRY_AUTH_FILE" not in passed:
        runtime = env.get("XDG_RUNTIME_DIR") or f"/run/containers/{os.geteuid()}"
        home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/")) / ".config")
        own = home / "containers" / "auth.json"
        if own.is_file() and not (Path(runtime) / "containers" / "auth.json").is_file():
            passed["REGISTRY_AUTH_FILE"] = str(own)
    return minimal_env(**passed)


def _policy() -> list[str]:
    """A host's signature policy is honoured; where there is none skopeo would refuse to run."""
    own = Path(os.environ.get("HOME", "/")) / ".config" / "containers" / "policy.json"
    there = own.is_file() or Path("/etc/containers/policy.json").is_file()
    return [] if there else ["--insecure-policy"]


def translate(error: ProgramFailed, name: str) -> Exception:
    """Turn skopeo's words into one of our errors."""
    if isinstance(error, ProgramNotFound):
        return ProgramNotFound(
            "skopeo is not installed, images cannot be pulled",
            hint="run: tupper setup (or: apt install skopeo)",
        )
    text = _shorten(error.output)
    if _DENIED.search(text):
        return ImagePullFailed(
            f"the registry does not let us read {name}: {text}",
            hint="log in with `skopeo login HOST`, `podman login` or `docker login`; "
            "a registry may also say this of a name that does not exist",
        )
    if _UNREACHABLE.search(text):
        return ImagePullFailed(
            f"cannot reach the source of {name}: {text}",
            hint="images that are already stored, and templates, work without a network",
        )
    if _ABSENT.search(text):
        return ImageNotFound(f"there is no image {name}: {text}")
    return ImagePullFailed(f"cannot get image {name}: {text}")


def _shorten(output: str) -> str:
    """The message of skopeo's last log line, without quotes and escapes."""
    found = _MESSAGE.findall(output)
    text = found[-1].replace('\\"', '"').replace("\\\\", "\\") if found else output
    return " ".join(text.split())[-600:]
