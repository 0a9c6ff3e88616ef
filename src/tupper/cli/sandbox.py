"""``tupper sandbox VERB``: the verbs on sandboxes, for those who look for them in a group."""

from __future__ import annotations

import click

from tupper.cli._app import VERBS, LazyGroup

_NAMES = (
    "create",
    "list",
    "info",
    "exec",
    "shell",
    "cp",
    "read",
    "write",
    "watch",
    "port",
    "logs",
    "stats",
    "top",
    "events",
    "snapshot",
    "timeout",
    "pause",
    "resume",
    "fork",
    "kill",
    "run",
)


@click.group(cls=LazyGroup, verbs={name: VERBS[name] for name in _NAMES})
def sandbox() -> None:
    """The verbs on sandboxes, as a group: ``tupper sandbox list`` is ``tupper list``."""
