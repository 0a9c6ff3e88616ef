"""Homes of tupper in which suites run: made once a run, as bare as at first for every suite.

Making one takes seconds, because of the tens of thousands of files of the templates. So each of
the suites that run at once has one, and hands it on to the next suite with nothing in it but what
was there at first.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance_places import CannotPrepare, run
from conformance_suites import ROOT
from tupper.core.paths import find_paths

_ENDING_TIMEOUT_S = 120
_AT_FIRST = "at-first.json"  # of each home: what it had
_END = """
from tupper.cli.kill import all_running, end_everything
from tupper.core.paths import find_paths
if find_paths().address_file.exists():
    print(*(info.sandbox_id for info in all_running()))
    end_everything()
"""


@contextmanager
def homes(count: int, source: Path | None) -> Generator[list[Path]]:
    """So many homes with the templates, in short paths because of those of sockets; then gone.

    Args:
        count: of homes.
        source: a home that has the templates; those of the user's cache are used without one.

    Raises:
        CannotPrepare: no sandbox can start on this host.
    """
    made: list[Path] = []
    try:
        for _ in range(count):
            made.append(Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp")))
            _fill(made[-1], source)
            source = source or made[0]
        yield made
    finally:
        for home in made:
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(_runtime(home), ignore_errors=True)


def _runtime(home: Path) -> Path:
    """Where the sockets of a home are."""
    return find_paths({**os.environ, "TUPPER_HOME": str(home)}).runtime


def _fill(home: Path, source: Path | None) -> None:
    prepared = of_tests("prepared")
    if source is None:
        if reason := prepared.prepare_home(home, keep=False):
            raise CannotPrepare(reason)
    else:
        prepared.link_home(source, home)
    (home / _AT_FIRST).write_text(json.dumps(_content(home)))


def _content(home: Path) -> dict[str, list[str]]:
    names: tuple[str, ...] = of_tests("prepared").KEPT
    return {name: sorted(entry.name for entry in (home / name).iterdir()) for name in names}


def clear(home: Path) -> list[str]:
    """Take from a home what a suite brought, and say what it left on the host.

    Raises:
        CannotPrepare: the suite removed what every suite starts from.
    """
    left = [f"sandbox {name}" for name in _end_everything()]
    left += sorted(of_tests("traces").settle(set()))
    before: dict[str, list[str]] = json.loads((home / _AT_FIRST).read_text())
    now = _content(home)
    for name, entries in before.items():
        if gone := set(entries) - set(now[name]):
            raise CannotPrepare(f"the suite removed {name}/{min(gone)}")
        _keep_only(home / name, set(entries))
    tops = {name.partition("/")[0] for name in before}
    _keep_only(home / "images", {name.partition("/")[2] for name in before})
    _keep_only(home, {_AT_FIRST, *tops})
    return left


def _keep_only(folder: Path, names: set[str]) -> None:
    for entry in folder.iterdir():
        if entry.name in names:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _end_everything() -> list[str]:
    """End all sandboxes and the background process of the home that ``TUPPER_HOME`` names."""
    return run([sys.executable, "-c", _END], timeout_s=_ENDING_TIMEOUT_S).split()


def of_tests(name: str) -> Any:
    """A module of ``tests`` that makes worlds for tests, and looks what is left of them."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return importlib.import_module(name)
