"""Showing a build's log: lines, and on a terminal how long it takes so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tupper.sdk._shared.template import LogEntry, LogEntryEnd, LogEntryLevel, LogEntryStart

_LEVELS: tuple[LogEntryLevel, ...] = ("debug", "info", "warn", "error")


def default_build_logger(min_level: LogEntryLevel | None = None) -> Callable[[LogEntry], None]:
    """A function for ``on_build_logs`` that writes to standard output.

    Args:
        min_level: what is less is not shown; ``info`` if None.
    """
    least = _LEVELS.index(min_level or "info")
    begun = time.monotonic()

    def show(entry: LogEntry) -> None:
        nonlocal begun
        if isinstance(entry, LogEntryStart):
            begun = time.monotonic()
        elif not isinstance(entry, LogEntryEnd) and _LEVELS.index(entry.level) >= least:
            took_s = f"{time.monotonic() - begun:.1f}s"
            at = entry.timestamp.strftime("%H:%M:%S")
            sys.stdout.write(f"{took_s:5} | {at} {entry.level.upper():5} {entry.message}\n")
            sys.stdout.flush()

    return show
