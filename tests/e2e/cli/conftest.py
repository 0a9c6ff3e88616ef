"""The command line as a user has it: a process, its streams, its exit code."""

import dataclasses
import os
import subprocess
import sys

import pytest

LIMIT_S = 60


@dataclasses.dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def start(*arguments, **options):
    """Start ``tupper`` with pipes; the caller ends it."""
    options.setdefault("stdin", subprocess.PIPE)
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "tupper", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        **options,
    )


@pytest.fixture(scope="session")
def tupper():
    """Run ``tupper`` to its end within a minute."""

    def run(*arguments, given=None, limit_s=LIMIT_S, **options):
        stdin = subprocess.PIPE if given is not None else subprocess.DEVNULL
        with start(*arguments, stdin=options.pop("stdin", stdin), **options) as process:
            try:
                out, err = process.communicate(given, timeout=limit_s)
            except BaseException:
                process.kill()
                raise
        return Ended(process.returncode, out.decode(), err.decode())

    return run


@pytest.fixture(scope="session")
def tupper_raw():
    """Start ``tupper``; whatever still runs at the end of the session is killed."""
    started = []

    def begin(*arguments, **options):
        started.append(start(*arguments, **options))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def box(sandbox):
    """The id of a sandbox that still answers after the test."""
    yield sandbox.sandbox_id
    assert sandbox.commands.run("echo ok", timeout=30).stdout == "ok\n"
