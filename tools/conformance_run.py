"""Run one suite to its end: ``python tools/conformance_run.py NAME WHEEL [--keep]``.

The suite gets the home that ``TUPPER_HOME`` names, and this process cleans it afterwards. What came
is compared with what the suite's ``expected.toml`` knows and with what it reached before. Printed
is a line, and more if anything was unexpected.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from conformance_homes import clear
from conformance_places import CannotPrepare, Place, cache_folder, place_of
from conformance_suites import (
    RESULTS,
    ROOT,
    SUITES,
    BadSuite,
    Case,
    Result,
    Suite,
    find_suites,
    judge,
    less_than_before,
    read_expected,
    read_junit,
    result_of,
    write_result,
)

_SHOWN_CHARS = 8000  # of what a suite printed that had a surprise


def main(arguments: Sequence[str]) -> int:
    """Run the suite; 1 if anything unexpected happened."""
    name, wheel, *more = arguments
    # So that an end from outside finds the suite ended and the home cleaned as well.
    signal.signal(signal.SIGTERM, _leave)
    suite, cache = find_suites()[name], cache_folder()
    started = time.monotonic()
    try:
        with place_of(suite.place, cache, Path(wheel)) as place:
            results = cache / "results" / suite.name
            cases, said = run_suite(suite, place, results, home=Path(os.environ["TUPPER_HOME"]))
    except (CannotPrepare, BadSuite) as exc:
        print(f"{name:<24} FAILED  cannot be run\n{exc}")
        return 1
    spent_s = time.monotonic() - started
    (results / "seconds").write_text(f"{spent_s:.1f}\n")
    result = result_of(suite, cases, versions(suite))
    return _report(result, cases, said, spent_s, keep="--keep" in more)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _report(result: Result, cases: list[Case], said: str, spent_s: float, *, keep: bool) -> int:
    surprises = [case for case in (*cases, *less_than_before(result)) if not case.expected]
    good = bool(cases) and not surprises
    word = "ok     " if good else "FAILED "
    print(f"{result.suite:<24} {word} {result.passed} of {result.total} in {spent_s:.0f} s")
    for case in surprises:
        print(f"  {case.test}: {case.outcome}, which was not expected: {case.reason[:500]}")
    if not good:
        print(said[-_SHOWN_CHARS:])
    elif not keep:
        write_result(result, RESULTS / f"{result.suite}.json")
    return 0 if good else 1


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
    try:
        status, said = _to_its_end(_command(suite, place, junit), suite, env)
    except BaseException:
        clear(home)
        raise
    (results / "output.txt").write_text(said)
    cases = judge(read_junit(junit) if junit.exists() else [], read_expected(suite))
    is_told = any(case.outcome == "failed" for case in cases)
    if status and not is_told:
        cases.append(Case("the run", "failed", f"it ended with status {status}", expected=False))
    if left := clear(home):
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


def versions(suite: Suite) -> dict[str, str]:
    """The pinned versions that the suite's row shows."""
    place = suite.place
    pins = dict(re.findall(r"(?m)^([\w.@/-]+)==(\S+)", place.constraints.read_text()))
    if place.npm:
        package = json.loads((place.folder / place.npm / "package.json").read_text())
        pins |= package.get("dependencies", {}) | package.get("devDependencies", {})
    return {name: pins[name] for name in suite.shows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
