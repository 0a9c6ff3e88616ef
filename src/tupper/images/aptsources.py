"""The distribution's own package sources of this machine.

Templates are built from the mirror that the machine is already configured for, with the key that
it already trusts. Third parties' repositories are left out: a line counts when its suite is the
machine's release (or its ``-updates`` or ``-security``), it offers ``main``, and it is signed by
the distribution's archive key or lies where the distribution's mirrors do.

Source: sources.list(5), both formats; os-release(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tupper.core.errors import Unavailable

_KEYRING = re.compile(r"/usr/share/keyrings/(debian|ubuntu)-archive-[\w-]*\.(gpg|pgp|asc)")
_PLACES = {"debian", "debian-security", "ubuntu", "ubuntu-ports"}
_COMPONENTS = {"main", "universe"}
_ALIASES = {"stable", "testing", "unstable", "sid", "oldstable"}
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class AptSource:
    """One repository.

    Args:
        uri: of the mirror.
        suite: such as ``bookworm-updates``.
        components: such as ``("main",)``.
        signed_by: path of a keyring; empty for the system's.
    """

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    def render(self) -> str:
        """A line of ``sources.list``."""
        option = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {option}{self.uri} {self.suite} {' '.join(self.components)}"

    def without_secrets(self) -> AptSource:
        """The same without a password in the address."""
        parts = urlsplit(self.uri)
        if "@" not in parts.netloc:
            return self
        clean = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        return replace(self, uri=urlunsplit(clean))


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a machine runs and where its packages come from.

    Args:
        codename: such as ``bookworm``.
        sources: the distribution's own.
    """

    codename: str
    sources: tuple[AptSource, ...]


# What :func:`find_distribution` reads.
DISTRIBUTION_FILES = (
    Path("/etc/os-release"),
    Path("/etc/apt/sources.list"),
    Path("/etc/apt/sources.list.d"),
)


def find_distribution(root: Path = Path("/")) -> Distribution:
    """Read a machine's own configuration.

    Raises:
        Unavailable: it is not Debian or Ubuntu, or has no usable source.
    """
    codename = _read_codename(root / "etc" / "os-release")
    if not codename:
        raise Unavailable(
            "this machine is neither Debian nor Ubuntu, so `base` cannot be built here",
            hint="use an image instead: image='docker.io/library/debian:12'",
        )
    sources = tuple(select_sources(list(_read_all(root / "etc" / "apt")), codename))
    if not sources:
        raise Unavailable(
            f"the package sources of this machine name no mirror for {codename}",
            hint="look at /etc/apt/sources.list and /etc/apt/sources.list.d",
        )
    return Distribution(codename, sources)


def select_sources(found: list[AptSource], codename: str) -> list[AptSource]:
    """The distribution's own among all sources, each once."""
    wanted = {codename, f"{codename}-updates", f"{codename}-security"}
    own = [source for source in found if _is_own(source)]
    chosen = [source for source in own if source.suite in wanted]
    if not any(source.suite == codename for source in chosen):
        aliases = _ALIASES | {f"{a}-{s}" for a in _ALIASES for s in ("updates", "security")}
        chosen += [source for source in own if source.suite in aliases]
    kept: dict[tuple[str, str], AptSource] = {}
    for source in chosen:
        components = tuple(c for c in source.components if c in _COMPONENTS)
        kept.setdefault((source.uri, source.suite), replace(source, components=components))
    return list(kept.values())


def _is_own(source: AptSource) -> bool:
    if "main" not in source.components:
        return False
    if source.signed_by:
        return _KEYRING.fullmatch(source.signed_by) is not None
    return urlsplit(source.uri).path.rstrip("/").rpartition("/")[2] in _PLACES


def _read_codename(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition("=") for line in lines)
    values = {key: value.strip("\"'") for key, _, value in pairs}
    families = {values.get("ID", ""), *values.get("ID_LIKE", "").split()}
    return values.get("VERSION_CODENAME", "") if families & {"debian", "ubuntu"} else ""


def _read_all(apt: Path) -> Iterator[AptSource]:
    files = [apt / "sources.list"]
    if (apt / "sources.list.d").is_dir():
        files += sorted((apt / "sources.list.d").iterdir())
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if file.suffix == ".sources":
            yield from parse_deb822(text)
        elif file.suffix == ".list":
            yield from parse_one_line(text)


def parse_one_line(text: str) -> Iterator[AptSource]:
    """Read the one-line format."""
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.split("#", 1)[0].strip())
        if match is None:
            continue
        suite, *components = match["rest"].split()
        options = dict(
            option.split("=", 1) for option in (match["options"] or "").split() if "=" in option
        )
        yield AptSource(match["uri"], suite, tuple(components), options.get("signed-by", ""))


def parse_deb822(text: str) -> Iterator[AptSource]:
    """Read the format of ``.sources`` files: stanzas of ``Key: value`` with continuations."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = _parse_stanza(stanza)
        if fields.get("enabled", "yes").lower() in {"no", "false", "0"}:
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        signed = fields.get("signed-by", "").strip()
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield AptSource(uri, suite, tuple(fields.get("components", "").split()), signed)


def _parse_stanza(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in {" ", "\t"} and key:
            fields[key] += "\n" + line.strip()
            continue
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            fields[key] = value.strip()
    return fields
