"""Which tupper this is."""

from __future__ import annotations

from importlib import metadata


def _find_version() -> str:
    try:
        return metadata.version("tupper")
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return "0.0.0"


VERSION = _find_version()

PROTOCOL = 1
"""Of the control plane; clients and background process compare it."""
