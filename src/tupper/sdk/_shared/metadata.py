"""Metadata that is kept with an uploaded file. Source: wire specification 9.3."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tupper.sdk._shared.errors import InvalidArgumentException

_KEY = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,246}")
_VALUE = re.compile(r"[\x20-\x7e]*")


def metadata_headers(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of an upload.

    Errors:
        InvalidArgumentException: a key or a value that no header can carry.
    """
    headers: dict[str, str] = {}
    for key, value in (metadata or {}).items():
        if not _KEY.fullmatch(key):
            raise InvalidArgumentException(f"metadata: the key {key!r} cannot be used")
        if not _VALUE.fullmatch(value):
            raise InvalidArgumentException(f"metadata: the value of {key!r} is not printable ASCII")
        headers[f"X-Metadata-{key}"] = value
    return headers
