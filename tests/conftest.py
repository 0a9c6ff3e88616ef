"""A world of its own for every run of the tests, and a look at what each module leaves behind.

``TUPPER_HOME`` is a short temporary directory (the path of a socket has 107 bytes), so a run never
meets the user's own sandboxes or another run's. It begins with runsc and the templates that
``prepared.py`` keeps in the user's cache. ``TUPPER_TEST_HOME`` names a directory to use and keep
instead, for a look at it afterwards.

After each module that may make sandboxes (everything but ``unit`` and ``repo``), nothing of our
engine may be left on the host. A run ends with how many tests were skipped, and why.
"""

import collections
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import ahead as work_ahead
from ahead import ahead
from prepared import prepare_home
from traces import host_traces, settle

__all__ = ["ahead"]

TESTS = Path(__file__).parent
_WITH_GVISOR = ("contract", "e2e")
_WITHOUT_MACHINES = ("unit", "repo")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def pytest_configure(config):
    kept = os.environ.get("TUPPER_TEST_HOME")
    home = kept or tempfile.mkdtemp(prefix="tt-", dir="/tmp")
    config.stash[_HOME] = None if kept else home
    os.environ["TUPPER_HOME"] = home
    if config.option.basetemp is None:
        # Pytest's own, /tmp/pytest-of-USER/pytest-123, leaves too little for paths of sockets.
        config.stash[_TMP] = tempfile.mkdtemp(prefix="tp-", dir="/tmp")
        config.option.basetemp = f"{config.stash[_TMP]}/t"
    for name in [n for n in os.environ if n.startswith("TUPPER_") and n not in _OURS]:
        del os.environ[name]
    for name in [n for n in os.environ if n.lower() in _PROXIES or n.startswith("E2B_")]:
        if not name.lower().endswith("_proxy"):
            del os.environ[name]


_HOME = pytest.StashKey[str | None]()
_TMP = pytest.StashKey[str]()
_OURS = frozenset({"TUPPER_HOME", "TUPPER_TEST_HOME", "TUPPER_CACHE"})


def pytest_unconfigure(config):
    work_ahead.end(config)
    if _TMP in config.stash:
        shutil.rmtree(config.stash[_TMP], ignore_errors=True)
    home = config.stash.get(_HOME, None)
    if home is None:
        return
    shutil.rmtree(home, ignore_errors=True)
    from tupper.core.paths import find_paths

    runtime = find_paths({**os.environ, "TUPPER_HOME": home}).runtime
    shutil.rmtree(runtime, ignore_errors=True)


def area(item):
    """``unit``, ``repo``, ``e2e``, …: the first folder below ``tests``."""
    parts = item.path.relative_to(TESTS).parts
    return parts[0] if len(parts) > 1 else ""


def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.as_posix()
        if area(item) in _WITH_GVISOR or "integration/gvisor" in path or "integration/qemu" in path:
            item.add_marker(pytest.mark.gvisor)
    work_ahead.choose(items)


def pytest_runtest_setup(item):
    if item.get_closest_marker("root") and (not hasattr(os, "geteuid") or os.geteuid()):
        pytest.skip("needs root on this host")
    if item.get_closest_marker("gvisor"):
        reason = item.config.stash[_WHY_NOT]
        if reason:
            pytest.skip(reason)


def pytest_collection_finish(session):
    """Prepare this host before the first test and outside of any test's time limit."""
    session.config.stash[_WHY_NOT] = ""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("gvisor") for item in session.items):
        _prepare(session.config)
    work_ahead.begin(session)


def _prepare(config):
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[_WHY_NOT] = prepare_home(
            Path(os.environ["TUPPER_HOME"]), keep=config.stash[_HOME] is None
        )


_WHY_NOT = pytest.StashKey[str]()


@pytest.fixture(scope="session", autouse=True)
def background_process():
    """Whatever background process the tests started leaves with them, sandboxes first."""
    yield
    from tupper.core.paths import find_paths

    if find_paths().address_file.exists():
        from tupper.cli.kill import end_everything

        end_everything()


@pytest.fixture(scope="module", autouse=True)
def nothing_left(request):
    """No process, mount, namespace, cgroup, loop device or socket of ours outlives a module."""
    if area(request.node) in _WITHOUT_MACHINES:
        yield
        return
    before = host_traces()
    yield
    left = settle(before)
    assert not left, f"{request.node.name} left on the host: {sorted(left)}"


@pytest.fixture(scope="module")
def sandbox():
    """One sandbox for a module that does not end it."""
    from tupper import Sandbox

    with Sandbox.create(timeout=1800) as made:
        yield made


def pytest_terminal_summary(terminalreporter):
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section(f"{reasons.total()} skipped")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:4d}  {reason}")
