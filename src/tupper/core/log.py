"""Logs are events with keys: ``machine.started sandbox=i… backend=gvisor boot_s=0.412``.

Never file contents, environment values or tokens.
"""

from __future__ import annotations

import logging

_LOGGER = logging.getLogger("tupper")


def event(name: str, /, **keys: object) -> None:
    """Write one event at level info."""
    _LOGGER.info("%s", _render(name, keys))


def problem(name: str, /, **keys: object) -> None:
    """Write one event at level warning: something that somebody should look at."""
    _LOGGER.warning("%s", _render(name, keys))


def notice(text: str) -> None:
    """Tell the user of a program something in words.

    Where nobody configured the standard ``logging``, it appears on standard error.
    """
    _LOGGER.warning("%s", text)


def _render(name: str, keys: dict[str, object]) -> str:
    return " ".join([name, *(f"{key}={_quote(value)}" for key, value in keys.items())])


def _quote(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
