"""The only file of the command line that prints.

Results go to standard output, all else to standard error. Tables are aligned columns without
boxes. Colour only on a terminal, and never with NO_COLOR (Source: no-color.org). What the guest
wrote may hold terminal escapes: names and values from a guest are printed through :func:`safe`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

_BAR_WIDTH = 24
_SGR = re.compile("(\x1b\\[[0-9;]*m)")
_SHOW_AFTER_S = 1.0
_REDRAW_S = 0.1


def result(text: str) -> None:
    """One line of the result."""
    sys.stdout.write(text + "\n")


def data(chunk: bytes, *, to_stderr: bool = False) -> None:
    """Bytes of the result, unchanged and at once."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.flush()
    stream.buffer.write(chunk)
    stream.buffer.flush()


def text(chunk: str) -> None:
    """Text of the result without a line end of ours."""
    sys.stdout.write(chunk)
    sys.stdout.flush()


def note(message: str) -> None:
    """A remark that is not part of the result."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def error(message: str, *, hint: str | None = None) -> None:
    """``error:`` and, where somebody can do something, ``hint:``."""
    sys.stderr.write(f"{_paint('error:', '31;1')} {message}\n")
    if hint:
        sys.stderr.write(f"{_paint('hint:', '36')} {hint}\n")
    sys.stderr.flush()


def failure(problem: Exception) -> None:
    """The text of an error and its hint, if it has one."""
    hint = getattr(problem, "hint", None)
    message = str(problem).strip() or type(problem).__name__
    code = getattr(problem, "code", None)
    if not isinstance(code, str) and type(problem).__module__.partition(".")[0] != "tupper":
        message = f"{type(problem).__name__}: {message}"
    error(message, hint=hint if isinstance(hint, str) else None)


def traceback() -> None:
    """The traceback of the error that is being handled."""
    import traceback as module  # noqa: PLC0415 - only for --debug

    sys.stderr.write(module.format_exc())


def as_json(value: object) -> None:
    """A result for programs: one JSON document."""
    result(json.dumps(value, indent=2, default=_jsonable, ensure_ascii=False))


def as_json_line(value: object) -> None:
    """One of several results for programs: a JSON document on a line, at once."""
    text(json.dumps(value, default=_jsonable, ensure_ascii=False) + "\n")


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(str(item) for item in cast("Iterable[object]", value))
    return str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns under a heading; numbers to the right."""
    for line in render_table(columns, rows):
        result(line)


def render_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of :func:`table`."""
    cells = [[safe(str(cell)) for cell in row] for row in rows]
    widths = [max([len(c), *(len(row[i]) for row in cells)]) for i, c in enumerate(columns)]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [_paint(line(columns), "1", stream=sys.stdout), *map(line, cells)]


def pairs(values: Mapping[str, object]) -> None:
    """``name  value`` lines, aligned."""
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        result(f"{name.ljust(width)}  {safe(str(value))}".rstrip())


def safe(value: str) -> str:
    """Text of a guest without what a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in value)


def size(count: float | None) -> str:
    """``12.3 MB``; a dash for what is not known."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def span(duration: timedelta | float | None) -> str:
    """``42s``, ``5m 10s``, ``3h 2m``, ``2d 4h``; a dash for what is not known."""
    if duration is None:
        return "-"
    left = int(duration.total_seconds() if isinstance(duration, timedelta) else duration)
    if left < 0:
        return "0s"
    parts: list[str] = []
    for name, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2]) or "0s"


def since(moment: datetime | None) -> timedelta | None:
    """How long ago a moment was."""
    return None if moment is None else datetime.now(UTC) - moment


def on_terminal() -> bool:
    """Whether a person sees standard error."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def result_is_seen() -> bool:
    """Whether a person sees standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def screen() -> Generator[Callable[[Sequence[str]], None]]:
    """The whole terminal, for something that is drawn again and again; given back at the end.

    Source: xterm's control sequences: 1049 is the alternate screen, 25 the cursor.
    """

    def draw(lines: Sequence[str]) -> None:
        width, height = shutil.get_terminal_size()
        shown = [f"{clip(line, width)}\x1b[K" for line in lines[: height - 1]]
        text("\x1b[H" + "\n".join(shown) + "\x1b[J")

    text("\x1b[?1049h\x1b[?25l")
    try:
        yield draw
    finally:
        text("\x1b[?25h\x1b[?1049l")


def clip(line: str, width: int) -> str:
    """As much of a line as there is room for; colours take none."""
    room, out = width, ""
    for part in _SGR.split(line):
        if not _SGR.fullmatch(part):
            part = part[:room]  # noqa: PLW2901
            room -= len(part)
        out += part
    return out


def paint(words: str, code: str) -> str:
    """Words of the result in a colour (SGR code), where colours are wanted."""
    return _paint(words, code, stream=sys.stdout)


def _paint(words: str, code: str, *, stream: object = None) -> str:
    target = sys.stderr if stream is None else stream
    is_tty = getattr(target, "isatty", lambda: False)()
    if not is_tty or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return words
    return f"\x1b[{code}m{words}\x1b[0m"


class Progress:
    """Says what is going on: a bar on a terminal, otherwise a line for each new step.

    Nothing is shown during the first second, so quick things stay silent.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._started = self._drawn = clock()
        self._message = ""
        self._visible = False

    def __call__(
        self, message: str, done_bytes: int | None = None, total_bytes: int | None = None
    ) -> None:
        """Report a step, and how far it is."""
        now = self._clock()
        is_new = message != self._message
        self._message = message
        if self._quiet or now - self._started < _SHOW_AFTER_S:
            return
        if not on_terminal():
            if is_new and message:
                note(safe(message))
            return
        if is_new or now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._draw(render_bar(message, done_bytes, total_bytes))

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r\x1b[K" + safe(line)[:width])
        sys.stderr.flush()
        self._visible = True

    def clear(self) -> None:
        """Take the bar away."""
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._visible = False


def render_bar(message: str, done_bytes: int | None, total_bytes: int | None) -> str:
    """``[######----]  40%  12.3 MB  message``, or only the message where no total is known."""
    if total_bytes and done_bytes is not None:
        part = min(1.0, done_bytes / total_bytes)
        filled = round(part * _BAR_WIDTH)
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        return f"[{bar}] {part:4.0%}  {size(done_bytes)}  {message}"
    if done_bytes:
        return f"{message}  {size(done_bytes)}"
    return message


@contextlib.contextmanager
def progress(*, quiet: bool = False) -> Generator[Progress]:
    """A :class:`Progress` that is taken away at the end, whatever happens."""
    bar = Progress(quiet=quiet)
    try:
        yield bar
    finally:
        bar.clear()


@contextlib.contextmanager
def waiting(message: str, *, quiet: bool = False) -> Generator[None]:
    """Say what is waited for, and for how long already, where nothing tells how far it is."""
    over = threading.Event()

    def tell(bar: Progress) -> None:
        began = time.monotonic()
        while not over.wait(_REDRAW_S * 5):
            bar(f"{message}  {span(time.monotonic() - began)}" if on_terminal() else message)

    with progress(quiet=quiet) as bar:
        thread = threading.Thread(target=tell, args=(bar,), name="tupper-waiting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
