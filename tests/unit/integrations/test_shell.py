"""How a command ends, for a framework."""

import pytest

from tupper import (
    CommandExitException,
    CommandResult,
    SandboxNotRunningException,
    TimeoutException,
)
from tupper.integrations import _shell


class Commands:
    """Writes what it was given and then ends so."""

    def __init__(self, end, written=("", "")):
        self.end, self.written = end, written

    def run(self, command, *, on_stdout, on_stderr, **options):
        on_stdout(self.written[0])
        on_stderr(self.written[1])
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


class Place:
    def __init__(self, end, written=("", "")):
        self.commands = Commands(end, written)


def test_a_result():
    outcome = _shell.run(Place(CommandResult("err", "out", 0, None, dropped_bytes=7)), "x")
    assert outcome == _shell.Outcome(0, "out", "err", 7)


def test_an_exit_code_is_a_result():
    failed = CommandExitException("err", "out", 3, "exit status 3")
    assert _shell.run(Place(failed), "x") == _shell.Outcome(3, "out", "err")


def test_a_program_that_may_not_be_executed_is_told_from_one_that_says_126():
    refused = CommandExitException("permission denied", "", 126, "permission denied")
    assert _shell.run(Place(refused), "x").not_allowed
    own = CommandExitException("permission denied", "", 126, "exit status 126")
    assert not _shell.run(Place(own), "x").not_allowed


def test_a_time_limit_has_what_was_written():
    late = Place(TimeoutException("late"), ("so far", "oh"))
    assert _shell.run(late, "x") == _shell.Outcome(124, "so far", "oh", timed_out=True)


def test_the_end_of_the_sandbox_is_no_result():
    with pytest.raises(SandboxNotRunningException):
        _shell.run(Place(SandboxNotRunningException("gone")), "x")


def test_only_the_beginning_of_a_stream_is_kept():
    kept = _shell.Partial(5)
    for piece in ("abc", "def", "ghi"):
        kept(piece)
    assert kept.text == "abcde"
