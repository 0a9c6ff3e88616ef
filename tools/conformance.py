"""Run test suites that others wrote against tupper: ``python tools/conformance.py [NAME...]``.

Each suite of ``tests/conformance`` is run in an environment of its own (``conformance_places.py``)
with a home of tupper that nobody else uses. What came is compared with what the suite's
``expected.toml`` knows; anything else fails the run, and so does anything that a suite leaves on
the host. A run without surprises writes ``tests/conformance/results/NAME.json`` and renews
``docs/conformance.md`` and the table in the README.

``--list`` names the suites. ``--pin NAME`` installs the newest versions of what a suite needs and
writes its ``constraints.txt``; ``--keep`` leaves the committed results and pages as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import conformance_page
from conformance_places import (
    CannotPrepare,
    Place,
    build_wheel,
    find_python,
    install,
    place_of,
    run,
)
from conformance_suites import (
    RESULTS,
    ROOT,
    SUITES,
    BadSuite,
    Case,
    Suite,
    find_suites,
    judge,
    read_expected,
    read_junit,
    result_of,
    write_result,
)

_ENDING_TIMEOUT_S = 120


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
    cache = _cache()
    clone = hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:12]
    wheel = build_wheel(cache / "wheel" / clone)
    if options.pin:
        for name in names:
            pin(suites[name].place, wheel)
        return 0
    failed = [name for name in names if not _run(suites[name], cache, wheel, keep=options.keep)]
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
    return parser.parse_args(arguments)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tupper" / "conformance"


def _run(suite: Suite, cache: Path, wheel: Path, *, keep: bool) -> bool:
    """Run one suite and say how it went; whether nothing unexpected happened."""
    started = time.monotonic()
    print(f"{suite.name:<24} ", end="", flush=True)
    try:
        with place_of(suite.place, cache, wheel) as place, _world() as home:
            prepared = time.monotonic()
            cases, said = run_suite(suite, place, cache / "results" / suite.name, home=home)
    except (CannotPrepare, BadSuite) as exc:
        print(f"FAILED  cannot be run\n{exc}", flush=True)
        return False
    result = result_of(suite, cases, versions(suite))
    surprises = [case for case in cases if not case.expected]
    good = bool(cases) and not surprises
    spent = f"{prepared - started:.0f} s to prepare, {time.monotonic() - prepared:.0f} s to run"
    word = "ok     " if good else "FAILED "
    print(f"{word} {result.passed} of {result.total}  {spent}", flush=True)
    for case in surprises:
        print(f"  {case.test}: {case.outcome}, which was not expected: {case.reason[:500]}")
    if not good:
        print(said[-8000:], flush=True)
    elif not keep:
        write_result(result, RESULTS / f"{suite.name}.json")
    return good


def run_suite(suite: Suite, place: Place, results: Path, *, home: Path) -> tuple[list[Case], str]:
    """Run a suite to its end: its cases, judged, and what it printed.

    A suite that dies, takes too long or leaves something on the host gets a case that says so.
    """
    results.mkdir(parents=True, exist_ok=True)
    junit = results / "junit.xml"
    junit.unlink(missing_ok=True)
    env = place.env() | {
        "TUPPER_HOME": str(home),
        "CONFORMANCE_JUNIT": str(junit),
        "CONFORMANCE_OUT": str(results),
        "CONFORMANCE_ROOT": str(ROOT),
    }
    status, said = _to_its_end(_command(suite, place, junit), suite, env)
    (results / "output.txt").write_text(said)
    cases = judge(read_junit(junit) if junit.exists() else [], read_expected(suite))
    is_told = any(case.outcome == "failed" for case in cases)
    if status and not is_told:
        cases.append(Case("the run", "failed", f"it ended with status {status}", expected=False))
    if left := _traces():
        cases.append(Case("the host afterwards", "failed", f"left: {left}", expected=False))
    (results / "cases.json").write_text(
        json.dumps([[c.test, c.outcome, c.reason, c.expected] for c in cases], indent=1)
    )
    return cases, said


def _command(suite: Suite, place: Place, junit: Path) -> list[str]:
    """What runs the suite. Pytest sees the suite's own directory and none of our configuration."""
    if suite.program:
        return [str(place.python), str(suite.folder / suite.program), *suite.options]
    files = [str(suite.folder / name) for name in suite.tests]
    config = SUITES / "pytest.ini"
    return [
        *(str(place.python), "-m", "pytest", "-q", "-ra", "-c", str(config)),
        *(f"--rootdir={SUITES}", f"--confcutdir={SUITES}", f"--junitxml={junit}"),
        *("-p", "no:cacheprovider", *suite.options, *files),
    ]


def _to_its_end(command: list[str], suite: Suite, env: Mapping[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            cwd=suite.folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=suite.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        said = (exc.stdout or b"").decode(errors="replace")
        return 124, f"{said}\n{suite.name} took over {suite.timeout_s} s"
    return done.returncode, done.stdout.decode(errors="replace")


@contextmanager
def _world() -> Generator[Path]:
    """A home of tupper with its templates, short because of the paths of sockets; then gone."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as home:
        os.environ["TUPPER_HOME"] = home
        try:
            if reason := _of_tests("prepared").prepare_home(Path(home), keep=False):
                raise CannotPrepare(reason)
            yield Path(home)
        finally:
            _end_everything()
            del os.environ["TUPPER_HOME"]


def _traces() -> list[str]:
    """What the suite left on the host: sandboxes, and what is there after these were ended."""
    sandboxes = [f"sandbox {name}" for name in _end_everything()]
    return sandboxes + sorted(_of_tests("traces").settle(set()))


_END = """
from tupper.cli.kill import all_running, end_everything
from tupper.core.paths import find_paths
if find_paths().address_file.exists():
    print(*(info.sandbox_id for info in all_running()))
    end_everything()
"""


def _end_everything() -> list[str]:
    """End all sandboxes and the background process; which sandboxes there still were."""
    command = [sys.executable, "-c", _END]
    return run(command, timeout_s=_ENDING_TIMEOUT_S).split()


def _of_tests(name: str) -> Any:
    """A module of ``tests`` that makes worlds for tests, and looks what is left of them."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return importlib.import_module(name)


def versions(suite: Suite) -> dict[str, str]:
    """The pinned versions that the suite's row shows."""
    place = suite.place
    pins = dict(re.findall(r"(?m)^([\w.@/-]+)==(\S+)", place.constraints.read_text()))
    if place.npm:
        package = json.loads((place.folder / place.npm / "package.json").read_text())
        pins |= package.get("dependencies", {}) | package.get("devDependencies", {})
    return {name: pins[name] for name in suite.shows}


def pin(suite: Suite, wheel: Path) -> None:
    """Write ``constraints.txt`` with what pip finds newest."""
    with tempfile.TemporaryDirectory() as root:
        run([find_python(suite.python), "-m", "venv", root])
        python = Path(root) / "bin" / "python"
        install(suite, python, wheel, pinned=False)
        frozen = run([str(python), "-m", "pip", "freeze", "--exclude", "tupper"])
    lines = [line for line in frozen.splitlines() if "==" in line]
    note = f"# Written by: python tools/conformance.py --pin {suite.name}\n"
    suite.constraints.write_text(note + "\n".join(lines) + "\n")
    print(f"{suite.constraints.relative_to(ROOT)}: {len(lines)} packages")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
