"""Certificate authorities that were added to this host on top of its distribution's.

Where an inspecting proxy stands between the host and the internet, its authority was installed on
the host; inside a sandbox nothing would work without it. So guests get exactly what the host has
beyond its distribution: never fewer, never the distribution's own again.

Source: update-ca-certificates(8) of Debian: local ones are in /usr/local/share/ca-certificates,
the distribution's in /usr/share/ca-certificates; update-ca-trust(8) of Fedora: anchors in
/etc/pki/ca-trust/source/anchors, the distribution's in /usr/share/pki/ca-trust-source.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PEM = re.compile(
    r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END", re.ASCII
)
_FILE_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TrustPlaces:
    """Where a host keeps its authorities.

    Args:
        local: directories of added ones.
        bundles: files with all that the host trusts.
        distribution: directories and files of the distribution's own.
    """

    local: Sequence[Path] = (
        Path("/usr/local/share/ca-certificates"),
        Path("/etc/pki/ca-trust/source/anchors"),
        Path("/etc/ca-certificates/trust-source/anchors"),
    )
    bundles: Sequence[Path] = (
        Path("/etc/ssl/certs/ca-certificates.crt"),
        Path("/etc/pki/tls/certs/ca-bundle.crt"),
    )
    distribution: Sequence[Path] = (
        Path("/usr/share/ca-certificates"),
        Path("/usr/share/pki/ca-trust-source"),
        Path("/usr/share/ca-certificates/trust-source"),
    )


class Trust:
    """The added authorities of this host, read again only when something there has changed."""

    def __init__(self, places: TrustPlaces | None = None) -> None:
        self._places = places or TrustPlaces()
        self._seen: tuple[int, ...] | None = None
        self._text = ""

    async def added(self) -> str:
        """PEM text; empty where there are none."""
        seen = tuple(_changed_at(place) for place in (*self._places.local, *self._places.bundles))
        if seen != self._seen:
            self._text = await asyncio.to_thread(find_added_authorities, self._places)
            self._seen = seen
        return self._text

    async def bundle(self) -> str:
        """All that this host trusts, as PEM text; empty where there is no bundle."""
        named = os.environ.get("SSL_CERT_FILE")
        for place in ([Path(named)] if named else []) + list(self._places.bundles):
            if text := await asyncio.to_thread(_read, place):
                return text
        return ""


def _changed_at(place: Path) -> int:
    try:
        return place.stat().st_mtime_ns
    except OSError:
        return 0


def find_added_authorities(
    places: TrustPlaces | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """The added authorities as PEM text; empty where there are none.

    ``SSL_CERT_FILE`` counts as one more bundle. Where the distribution's own cannot be told, a
    bundle says nothing and only the local directories count.
    """
    places = places or TrustPlaces()
    named = (os.environ if environ is None else environ).get("SSL_CERT_FILE")
    bundles = [*places.bundles, *([Path(named)] if named else [])]
    own = set(_certificates(places.distribution))
    found = dict.fromkeys(_certificates(places.local))
    if own:
        found |= dict.fromkeys(der for der in _certificates(bundles) if der not in own)
    return "".join(_render(der) for der in found)


def _certificates(places: Iterable[Path]) -> Iterable[bytes]:
    for place in places:
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            yield from _parse(_read(file))


def _read(file: Path) -> str:
    try:
        if not file.is_file() or file.stat().st_size > _FILE_LIMIT:
            return ""
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _parse(text: str) -> Iterable[bytes]:
    for match in _PEM.finditer(text):
        try:
            yield base64.b64decode("".join(match[1].split()), validate=True)
        except binascii.Error:
            continue


def _render(der: bytes) -> str:
    body = base64.encodebytes(der).decode().replace("\n", "")
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
