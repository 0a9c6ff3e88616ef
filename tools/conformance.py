"""Run test suites that others wrote against tupper: ``python tools/conformance.py [NAME...]``.

Each suite of ``tests/conformance`` is run in an environment of its own (``conformance_places.py``)
with a home of tupper that nobody else uses meanwhile (``conformance_homes.py``), two at a time, the
longest first. What came is compared with what the suite's ``expected.toml`` knows and with its row
of the table; anything else fails the run, and so does anything that a suite leaves on the host. A
suite without surprises writes ``tests/conformance/results/NAME.json``, and the run renews
``docs/conformance.md`` and the table in the README.

``--list`` names the suites. ``--pin NAME`` installs the newest versions of what a suite needs and
writes its ``constraints.txt``; ``--keep`` leaves the committed results and pages as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import conformance_page
from conformance_homes import homes
from conformance_places import (
    CannotPrepare,
    build_wheel,
    cache_folder,
    freeze,
    install,
    make_venv,
    place_of,
)
from conformance_suites import ROOT, Suite, find_suites

_RUN = Path(__file__).with_name("conformance_run.py")
_UNKNOWN_S = 30.0  # how long a suite is thought to take that never ran here


def main(arguments: Sequence[str]) -> int:
    """Run the suites that were named, or all; 1 if any had a surprise, 2 for an unknown name."""
    options = _parse(arguments)
    suites = find_suites()
    if options.list:
        print("\n".join(f"{suite.name:<24} {suite.title}" for suite in suites.values()))
        return 0
    names = options.names or list(suites)
    if unknown := [name for name in names if name not in suites]:
        print(f"error: no suite {unknown[0]!r}; there are {', '.join(suites)}", file=sys.stderr)
        return 2
    clone = hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:12]
    wheel = build_wheel(cache_folder() / "wheel" / clone)
    if options.pin:
        for name in names:
            pin(suites[name].place, wheel)
        return 0
    try:
        failed = run_all([suites[name] for name in names], wheel, options)
    except CannotPrepare as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    if not options.keep:
        conformance_page.main([])
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run test suites that others wrote.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; all if none is named")
    parser.add_argument("--list", action="store_true", help="name the suites and run none")
    parser.add_argument("--pin", action="store_true", help="write constraints.txt and run none")
    parser.add_argument("--keep", action="store_true", help="leave committed results and pages")
    parser.add_argument("--jobs", type=int, default=2, help="suites that run at a time [2]")
    parser.add_argument("--home", type=Path, help="take the templates from this home of tupper")
    return parser.parse_args(arguments)


def run_all(suites: list[Suite], wheel: Path, options: argparse.Namespace) -> list[str]:
    """Prepare all that the suites need, then run them; the names of those with a surprise."""
    started = time.monotonic()
    places = {suite.place.name: suite.place for suite in suites}
    with ThreadPoolExecutor(options.jobs) as workers:
        refused = dict(workers.map(preparer(wheel), places.values()))
        ready = [suite for suite in suites if not refused[suite.place.name]]
        for suite in suites:
            if said := refused[suite.place.name]:
                print(f"{suite.name:<24} FAILED  cannot be run\n{said}", flush=True)
        free: SimpleQueue[Path] = SimpleQueue()
        with homes(min(options.jobs, len(ready)), options.home) as made:
            for home in made:
                free.put(home)
            prepared_s = time.monotonic() - started
            run = runner(wheel, free, *(["--keep"] if options.keep else []))
            good = dict(workers.map(run, sorted(ready, key=seconds, reverse=True)))
    took_s = time.monotonic() - started
    print(f"{took_s / 60:.1f} min, {prepared_s / 60:.1f} of them to prepare", flush=True)
    return [suite.name for suite in suites if not good.get(suite.name)]


def preparer(wheel: Path) -> Callable[[Suite], tuple[str, str]]:
    """Makes the environment of a suite and of those that share it, or says why it cannot be."""

    def prepare(place: Suite) -> tuple[str, str]:
        try:
            with place_of(place, cache_folder(), wheel):
                return place.name, ""
        except CannotPrepare as exc:
            return place.name, str(exc)

    return prepare


def seconds(suite: Suite) -> float:
    """What the suite took when it last ran here."""
    file = cache_folder() / "results" / suite.name / "seconds"
    return float(file.read_text()) if file.exists() else _UNKNOWN_S


def runner(wheel: Path, free: SimpleQueue[Path], *more: str) -> Callable[[Suite], tuple[str, bool]]:
    """Runs a suite in one of the free homes, as a process of its own, and shows what it says."""

    def run(suite: Suite) -> tuple[str, bool]:
        home = free.get()
        command = [sys.executable, str(_RUN), suite.name, str(wheel), *more]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "TUPPER_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        finally:
            free.put(home)
        print(done.stdout.rstrip(), flush=True)
        return suite.name, done.returncode == 0

    return run


def pin(suite: Suite, wheel: Path) -> None:
    """Write ``constraints.txt`` with what pip finds newest."""
    with tempfile.TemporaryDirectory() as root:
        make_venv(suite, Path(root))
        python = Path(root) / "bin" / "python"
        install(suite, python, wheel, pinned=False)
        lines = freeze(python)
    note = f"# Written by: python tools/conformance.py --pin {suite.name}\n"
    suite.constraints.write_text(note + "\n".join(lines) + "\n")
    print(f"{suite.constraints.relative_to(ROOT)}: {len(lines)} packages")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
