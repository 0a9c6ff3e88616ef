"""Which tupper this is."""

from __future__ import annotations

from importlib import metadata

try:
    VERSION = metadata.version("tupper")
except metadata.PackageNotFoundError:  # run from a checkout that was never installed
    VERSION = "0.0.0"

PROTOCOL = 1
"""Of the control plane; clients and background process compare it."""
