"""Programs without an event loop whose output goes to a file."""

import sys
import tempfile
import time

import pytest

from tupper.core.errors import DeadlineExceeded, ProgramFailed
from tupper.core.process import run_sync


def test_the_end_is_told_and_not_looked_for(monkeypatch):
    def look(_):
        raise AssertionError("it slept between two looks")

    with tempfile.TemporaryFile() as output:
        if sys.platform == "linux":
            monkeypatch.setattr(time, "sleep", look)
        done = run_sync(["sh", "-c", "sleep 0.2; echo said"], timeout_s=60, output=output)
        assert (done.returncode, done.stdout) == (0, b"")
        output.seek(0)
        assert output.read() == b"said\n"


def test_a_program_that_takes_too_long_is_ended():
    with tempfile.TemporaryFile() as output, pytest.raises(DeadlineExceeded):
        run_sync(["sleep", "1000"], timeout_s=0.05, output=output)


def test_a_program_that_fails_is_told():
    with tempfile.TemporaryFile() as output, pytest.raises(ProgramFailed) as caught:
        run_sync(["sh", "-c", "exit 7"], timeout_s=60, output=output)
    assert caught.value.returncode == 7
