"""What ``tupper config`` shows: places, files, settings, profiles. Never a key."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

from tupper.core.config import load_config
from tupper.core.paths import find_paths


def describe(environ: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    """The facts by section.

    Args:
        environ: where ``TUPPER_*`` variables come from; the process's own if None.
    """
    variables = dict(os.environ) if environ is None else environ
    paths = find_paths(variables)
    config = load_config(paths, environ=variables, cwd=Path.cwd())
    return {
        "places": {
            "data": str(paths.data),
            "config": str(paths.config),
            "cache": str(paths.cache),
            "runtime": str(paths.runtime),
        },
        "files": {path.name: str(path) for path in config.files},
        "server": {
            "url": config.url or "the local background process",
            "api_key": "set" if config.api_key else "not set",
        },
        "settings": {
            item.name: getattr(config.settings, item.name) for item in fields(config.settings)
        },
        "defaults": dict(config.defaults),
        "profiles": {
            name: f"{profile}" + (" (in use)" if name == config.profile else "")
            for name, profile in config.profiles.items()
        },
    }
