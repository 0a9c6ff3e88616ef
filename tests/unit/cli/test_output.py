"""What the command line prints, and how."""

import contextlib
import io
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tupper.cli import _output
from tupper.core.errors import SandboxNotFound


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2_500_000, "2.5 MB"),
        (7e13, "70.0 TB"),
    ],
)
def test_sizes(count, text):
    assert _output.size(count) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, "-"),
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3723, "1h 2m"),
        (timedelta(days=2, hours=4, minutes=9), "2d 4h"),
    ],
)
def test_spans(duration, text):
    assert _output.span(duration) == text


def test_a_guest_cannot_drive_the_terminal():
    assert _output.safe("a\x1b[2Jb\rc\u202e") == "a\\x1b[2Jb\\rc\\u202e"


def test_tables_are_aligned_and_numbers_are_to_the_right(capsys):
    _output.table(("NAME", "N"), [("a", 5), ("longer", 12345)])
    assert capsys.readouterr().out == "NAME        N\na           5\nlonger  12345\n"


def test_an_empty_table_is_its_heading(capsys):
    _output.table(("NAME", "N"), [])
    assert capsys.readouterr().out == "NAME  N\n"


def test_errors_go_to_stderr_with_their_hint(capsys):
    _output.failure(SandboxNotFound("no sandbox 'x'", hint="tupper list shows them"))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: no sandbox 'x'\nhint: tupper list shows them\n")


def test_a_foreign_error_says_what_kind_it_is(capsys):
    _output.failure(KeyError("x"))
    assert capsys.readouterr().err == "error: KeyError: 'x'\n"


def test_json_knows_times(capsys):
    _output.as_json({"at": datetime(2026, 1, 2, tzinfo=UTC), "what": frozenset({"b", "a"})})
    assert json.loads(capsys.readouterr().out) == {
        "at": "2026-01-02T00:00:00+00:00",
        "what": ["a", "b"],
    }


def test_colour_is_for_terminals_and_no_color_wins(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, is_painted in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        _output.error("x")
        assert ("\x1b[" in stream.getvalue()) is is_painted
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stderr", quiet := Terminal())
    _output.error("x")
    assert "\x1b[" not in quiet.getvalue()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_progress_is_silent_for_a_second_and_leaves_no_trace(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    clock = Clock()
    bar = _output.Progress(clock=clock)
    bar("pulling", 1, 10)
    assert stream.getvalue() == ""
    clock.now = 2.0
    bar("pulling", 5, 10)
    assert "50%" in stream.getvalue()
    bar.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_progress_without_a_terminal_is_one_line_a_step(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    clock = Clock()
    bar = _output.Progress(clock=clock)
    clock.now = 2.0
    for done in range(5):
        bar("pulling", done, 10)
    bar("unpacking")
    assert stream.getvalue() == "pulling\nunpacking\n"


# Things that are drawn again and again.


def test_a_line_is_clipped_by_what_is_seen_of_it():
    line = "\x1b[1mabc\x1b[0mdef"
    assert _output.clip(line, 4) == "\x1b[1mabc\x1b[0md"
    assert _output.clip("abc", 9) == "abc"


def test_a_screen_is_given_back_whatever_happens(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with contextlib.suppress(KeyboardInterrupt), _output.screen() as draw:
        draw(["one", "two"])
        raise KeyboardInterrupt
    shown = terminal.getvalue()
    assert shown.startswith("\x1b[?1049h\x1b[?25l\x1b[Hone")
    assert shown.endswith("\x1b[?25h\x1b[?1049l")


def test_colours_obey(monkeypatch):
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _output.paint("x", "31") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert _output.paint("x", "31") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert _output.paint("x", "31") == "x"


def test_waiting_says_once_what_takes_long(monkeypatch, capsys):
    said = threading.Event()
    monkeypatch.setattr(_output, "_SHOW_AFTER_S", 0.0)
    monkeypatch.setattr(_output, "_REDRAW_S", 0.001)
    real = _output.note
    monkeypatch.setattr(_output, "note", lambda text: (real(text), said.set()))
    with _output.waiting("pausing work"):
        assert said.wait(60)
    assert capsys.readouterr().err == "pausing work\n"
    with _output.waiting("pausing work", quiet=True):
        pass
    assert capsys.readouterr().err == ""
