"""Getting a good runsc: gVisor's own release, or the newest package of the machine's own mirror.

Releases come over HTTPS with a SHA-512 beside them. Packages are fetched by apt itself, with
sources, state and cache in a private directory: apt brings the machine's proxies, certificates
and archive keys, checks the signature and the SHA-256, and the system's own sources stay as they
are. Nothing is installed into the system: one file is put into tupper's data directory, after it
has run a guest.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.gvisor.options import parse_options
from tupper.backends.gvisor.probing import Prober
from tupper.backends.gvisor.program import private_copy
from tupper.core.backend import BackendContext
from tupper.core.errors import BackendUnavailable, ProgramFailed, TupperError
from tupper.core.paths import make_private
from tupper.core.process import downloading_env, run

# Source: gvisor.dev/docs/user_guide/install, "Install from an apt repository" and below.
RELEASES = "https://storage.googleapis.com/gvisor/releases/release/latest"
_ANSWER_TIMEOUT_S = 4.0
_DOWNLOAD_TIMEOUT_S = 300.0
_LARGEST_BYTES = 256 * 1024 * 1024
_OLDEST_PACKAGE = "0.0~2024"
# Aliases that mirrors keep, the most settled first. The behavioural probe judges what they hold.
_DEBIAN_SUITES = ("stable", "trixie", "testing", "unstable")
_UBUNTU_SUITES = ("devel",)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """One archive that the machine's apt knows.

    Args:
        uri: of the archive, without a slash at the end.
        suite: such as ``bookworm``.
        components: such as ``main``.
        signed_by: the keyring of this source; empty for apt's own.
    """

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""


async def setup(context: BackendContext, *, progress: Progress) -> str:
    """Make gVisor usable where that is possible. Safe to repeat.

    Returns:
        What there was, or what was done.

    Raises:
        BackendUnavailable: with what was tried and why each failed.
    """
    home = context.data_dir / "backends" / "gvisor"
    prober = Prober(home, parse_options(context.settings, settings=True))
    found = await prober.find()
    if found.probe.usable:
        return f"uses {found.runsc} ({found.probe.version}), {found.probe.mechanism}"
    if not found.probe.remedy.startswith("run: tupper setup"):
        raise BackendUnavailable(found.probe.reason, hint=found.probe.remedy or None)
    make_private(home)
    failures = [found.probe.reason]
    for name, fetch in (
        ("gVisor's releases", fetch_release),
        ("the package mirror", fetch_package),
    ):
        progress(f"gvisor: fetching runsc from {name}")
        try:
            said = await _install(home, fetch)
        except (TupperError, OSError) as error:
            failures.append(f"{name}: {error}")
            continue
        prober.forget()
        found = await prober.find()
        if found.probe.usable:
            return f"{said} to {found.runsc} ({found.probe.version}), {found.probe.mechanism}"
        failures.append(f"{name}: {found.probe.reason}")
    raise BackendUnavailable("; ".join(failures), hint="install runsc 20240729 or newer")


async def _install(home: Path, fetch: Callable[[Path], object]) -> str:
    """Fetch into a directory beside the place, then rename: there is never half a program."""
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=home) as name:
        result = fetch(Path(name))
        said = await result if asyncio.iscoroutine(result) else str(result)
        fresh = Path(name) / "runsc"
        fresh.chmod(0o755)
        fresh.replace(private_copy(home))
        return str(said)


async def fetch_release(into: Path, *, base_url: str = RELEASES) -> str:
    """Put ``runsc`` of gVisor's latest release into a directory.

    Raises:
        ProgramFailed: the digest is not the published one.
        OSError: not reachable (told within some seconds).
    """
    return await asyncio.to_thread(_fetch_release, into, base_url)


def _fetch_release(into: Path, base_url: str) -> str:
    url = f"{base_url}/{platform.machine()}/runsc"
    with urllib.request.urlopen(f"{url}.sha512", timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310
        words = answer.read(4096).decode(errors="replace").split()
    digest = hashlib.sha512()
    with (
        urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S) as answer,  # noqa: S310
        (into / "runsc").open("wb") as file,
    ):
        while chunk := answer.read(1 << 20):
            digest.update(chunk)
            file.write(chunk)
            if file.tell() > _LARGEST_BYTES:
                raise ProgramFailed(f"{url} is larger than {_LARGEST_BYTES} bytes")
    if not words or words[0].lower() != digest.hexdigest():
        raise ProgramFailed(f"{url} does not have the published SHA-512 digest")
    return f"installed gVisor's latest release from {base_url}"


async def fetch_package(into: Path, *, etc_apt: Path = Path("/etc/apt")) -> str:
    """Put ``runsc`` of the newest suite of the machine's mirror into a directory.

    Raises:
        ProgramFailed: no suite has a good one; the text says what each said.
    """
    if shutil.which("apt-get") is None:
        raise ProgramFailed("this machine has no apt")
    failures: list[str] = []
    for source in candidate_sources(read_sources(etc_apt)):
        place = into / f"apt-{len(failures)}"
        try:
            version = await _fetch_with_apt(source, place, into / "runsc")
        except TupperError as error:
            failures.append(f"{source.uri} {source.suite}: {error.message.splitlines()[0]}")
            continue
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return f"installed runsc {version} of {source.uri} {source.suite}"
    raise ProgramFailed("; ".join(failures) or "apt has no Debian or Ubuntu mirror configured")


async def _fetch_with_apt(source: Source, place: Path, target: Path) -> str:
    """Fetch one package with a private apt; its version."""
    options = _prepare_apt(source, place)

    async def apt(*argv: str) -> str:
        done = await run(
            [argv[0], *options, *argv[1:]],
            timeout_s=_DOWNLOAD_TIMEOUT_S,
            env=downloading_env(),
            cwd=place,
        )
        return done.text

    await apt("apt-get", "-qq", "--error-on=any", "update")
    shown = await apt("apt-cache", "show", "--no-all-versions", "runsc")
    version = parse_field(shown, "Version")
    await run(
        ["dpkg", "--compare-versions", version, "ge", _OLDEST_PACKAGE], timeout_s=_ANSWER_TIMEOUT_S
    )
    await apt("apt-get", "-qq", "download", "runsc")
    await _unpack(place, target)
    return version


async def _unpack(place: Path, target: Path) -> None:
    packages = [entry.path for entry in os.scandir(place) if entry.name.endswith(".deb")]
    await run(["dpkg-deb", "-x", packages[0], str(place / "x")], timeout_s=_DOWNLOAD_TIMEOUT_S)
    (place / "x" / "usr" / "bin" / "runsc").replace(target)


def _prepare_apt(source: Source, place: Path) -> list[str]:
    """Make a private apt that knows one source.

    Returns:
        Options that make apt use it; proxies, certificates and keys stay the machine's.
    """
    for directory in ("state/lists/partial", "cache/archives/partial", "parts"):
        (place / directory).mkdir(parents=True)
    (place / "status").touch()
    (place / "sources.list").write_text(render_source(source))
    return [
        *(f"-oDir::State={place}/state", f"-oDir::State::status={place}/status"),
        *(f"-oDir::Cache={place}/cache", f"-oDir::Etc::sourcelist={place}/sources.list"),
        *(f"-oDir::Etc::sourceparts={place}/parts", "-oAPT::Sandbox::User=root"),
        *("-oAcquire::Languages=none", "-oAPT::Get::AllowUnauthenticated=false"),
        *("-oAcquire::AllowInsecureRepositories=false", "-oAcquire::Retries=1"),
        *("-oDir::Etc::preferences=/dev/null", f"-oDir::Etc::preferencesparts={place}/parts"),
        *("-oAcquire::http::Timeout=20", "-oAcquire::https::Timeout=20"),
        "-oAcquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
    ]


def render_source(source: Source) -> str:
    """A line of ``sources.list``."""
    option = f" [signed-by={source.signed_by}]" if source.signed_by else ""
    return f"deb{option} {source.uri} {source.suite} {' '.join(source.components)}\n"


def candidate_sources(known: list[Source]) -> list[Source]:
    """Newer suites of the mirrors that a machine uses, the most settled first."""
    out: dict[Source, None] = {}
    for source in known:
        uri = source.uri.lower()
        if "main" not in source.components or "security" in source.suite + uri:
            continue
        suites: tuple[str, ...] = ()
        components: tuple[str, ...] = ("main",)
        if re.search(r"/debian/?$", uri):
            suites = _DEBIAN_SUITES
        elif re.search(r"/ubuntu(-ports)?/?$", uri):
            suites, components = _UBUNTU_SUITES, ("main", "universe")
        for suite in suites:
            out[Source(source.uri, suite, components, source.signed_by)] = None
    order = (*_DEBIAN_SUITES, *_UBUNTU_SUITES)
    return sorted(out, key=lambda source: order.index(source.suite))


def read_sources(etc_apt: Path) -> list[Source]:
    """All binary sources of apt's configuration, in both formats. Unreadable files are left out.

    Source: sources.list(5).
    """
    parts = etc_apt / "sources.list.d"
    out: list[Source] = []
    for path in (etc_apt / "sources.list", *sorted(parts.glob("*.list"))):
        for line in _text(path).splitlines():
            out += parse_source_line(line)
    for path in sorted(parts.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", _text(path)):
            out += parse_source_stanza(stanza)
    return out


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def parse_source_line(line: str) -> list[Source]:
    """The source of a line like ``deb [signed-by=/k] http://host/debian bookworm main``."""
    match = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
    if match is None:
        return []
    options, uri, suite, components = match.groups()
    signed = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
    return [Source(uri.rstrip("/"), suite, tuple(components.split()), signed[1] if signed else "")]


def parse_source_stanza(stanza: str) -> list[Source]:
    """The sources of one stanza of a ``.sources`` file."""
    fields: dict[str, str] = {}
    last = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[last] = fields.get(last, "") + " " + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            fields[last] = value.strip()
    if fields.get("enabled", "yes").lower() in ("no", "false", "0"):
        return []
    if "deb" not in fields.get("types", "").split():
        return []
    signed = fields.get("signed-by", "")
    components = tuple(fields.get("components", "").split())
    return [
        Source(uri.rstrip("/"), suite, components, signed if signed.startswith("/") else "")
        for uri in fields.get("uris", "").split()
        for suite in fields.get("suites", "").split()
    ]


def parse_field(text: str, name: str) -> str:
    """The first value of a field in the output of ``apt-cache show``.

    Raises:
        ProgramFailed: it is not there.
    """
    for line in text.splitlines():
        if line.startswith(f"{name}: "):
            return line[len(name) + 2 :].strip()
    raise ProgramFailed(f"apt does not tell the {name.lower()} of runsc")
