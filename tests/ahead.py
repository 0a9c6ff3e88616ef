"""Long work that needs nothing of any other test runs beside them, at the lowest priority.

A test that is marked with ``ahead("module:function")`` gets by the fixture of that name what the
function returned for the test's parameters, as JSON would. All those functions run one after
another, from the start of the session on, in one process of their own, which ends when this one
does; their tests come last.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import Future
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_AHEAD = pytest.StashKey["Ahead"]()
_LOWEST = 19


class Ahead:
    """The process and what it has answered.

    Args:
        calls: name of a test → what to call: ``module:function`` and arguments by name.
    """

    def __init__(self, calls):
        self._results = {name: Future() for name in calls}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._process.stdin.write(json.dumps(calls) + "\n")
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, name="ahead", daemon=True)
        self._reader.start()

    def result(self, name):
        """What the function of a test has returned; waits for it."""
        return self._results[name].result()

    def _read(self):
        for line in self._process.stdout:
            name, result, error = json.loads(line)
            if error:
                self._results[name].set_exception(RuntimeError(error))
            else:
                self._results[name].set_result(result)
        for result in self._results.values():
            if not result.done():
                result.set_exception(RuntimeError("the process for work ahead has ended early"))

    def end(self):
        """End it, whatever it does."""
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


def choose(items):
    """Put the tests with work ahead behind the others."""
    items.sort(key=lambda item: item.get_closest_marker("ahead") is not None)


def begin(session):
    """Start the work for the tests that were selected."""
    calls = {}
    for item in session.items:
        if mark := item.get_closest_marker("ahead"):
            arguments = item.callspec.params if hasattr(item, "callspec") else {}
            calls[item.nodeid] = (mark.args[0], arguments)
    if calls:
        session.config.stash[_AHEAD] = Ahead(calls)


def end(config):
    """Leave nothing of it."""
    if work := config.stash.get(_AHEAD, None):
        work.end()


@pytest.fixture
def ahead(request):
    """What the function that this test names has returned."""
    return request.config.stash[_AHEAD].result(request.node.nodeid)


def _work():
    os.nice(_LOWEST)
    out = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.path[0] = str(TESTS)
    calls = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name, (function, arguments) in calls.items():
        out.write(json.dumps((name, *_call(function, arguments))) + "\n")
        out.flush()
    signal.pause()


def _call(function, arguments):
    module, _, attribute = function.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)(**arguments), ""
    except Exception:
        return None, traceback.format_exc()


def _end_with_parent():
    sys.stdin.read()
    os.killpg(os.getpid(), signal.SIGKILL)  # what it has started too


if __name__ == "__main__":
    _work()
