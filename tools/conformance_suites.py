"""What a suite of ``tests/conformance`` is, and what came of one.

A suite is a directory with ``suite.toml``, pinned requirements and, if anything is known not to
pass, ``expected.toml``. The fields are described in ``tests/conformance/README.md``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
SUITES = ROOT / "tests" / "conformance"
RESULTS = SUITES / "results"
DEFAULT_TIMEOUT_S = 600


class BadSuite(Exception):
    """A suite's files do not say what they must; the text names the file and the field."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of somebody else's, pointed at something of ours.

    Args:
        name: of its directory.
        title: of its row.
        subject: what of ours is judged, as Markdown.
        shows: names of packages whose versions the table gives.
        install: what pip installs, beside tupper with ``extras``; pinned by ``constraints.txt``.
        extras: optional parts of tupper.
        tests: files that pytest runs, relative to the directory; or
        program: a Python file that writes the JUnit file that ``CONFORMANCE_JUNIT`` names.
        options: more arguments for pytest or the program.
        python: the lowest version of Python, such as ``3.12``; the runner's own if empty.
        npm: where ``package.json`` and its lock lie, relative to the directory; none if empty.
        environment: another suite, whose environment (``install``, ``extras``, ``python``, ``npm``,
            ``constraints.txt``) this one uses.
        timeout_s: for the whole run of the suite.
    """

    name: str
    title: str
    subject: str
    shows: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    program: str = ""
    options: tuple[str, ...] = ()
    python: str = ""
    npm: str = ""
    environment: str = ""
    timeout_s: int = DEFAULT_TIMEOUT_S

    @property
    def folder(self) -> Path:
        """Its directory."""
        return SUITES / self.name

    @property
    def place(self) -> Suite:
        """The suite whose environment it runs in: itself, or the one that it names."""
        if not self.environment:
            return self
        return read_suite(SUITES / self.environment / "suite.toml")

    @property
    def constraints(self) -> Path:
        """The versions of everything that pip installs for it."""
        return self.folder / "constraints.txt"


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a suite, and how it ended.

    Args:
        test: its name in the suite.
        outcome: ``passed``, ``failed`` or ``skipped``.
        reason: what the judge said, or why it was expected.
        expected: whether it passed, or was known not to.
    """

    test: str
    outcome: str
    reason: str = ""
    expected: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What the page shows of a suite; the same run gives the same file, to the byte."""

    suite: str
    title: str
    subject: str
    versions: Mapping[str, str]
    total: int
    passed: int
    exceptions: tuple[Case, ...] = field(default=())


def find_suites() -> dict[str, Suite]:
    """All suites by name, sorted."""
    files = sorted(SUITES.glob("*/suite.toml"))
    return {file.parent.name: read_suite(file) for file in files}


def read_suite(file: Path) -> Suite:
    """Parse ``suite.toml``.

    Raises:
        BadSuite: an unknown field, a missing one, or neither ``tests`` nor ``program``.
    """
    content: dict[str, Any] = tomllib.loads(file.read_text())
    known = {entry.name: entry for entry in fields(Suite) if entry.name != "name"}
    for key, value in content.items():
        if key not in known:
            raise BadSuite(f"{file}: unknown field {key}")
        content[key] = tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]
        default = known[key].default
        if not isinstance(content[key], str if default is MISSING else type(default)):
            raise BadSuite(f"{file}: {key} is {value!r}, which is of the wrong type")
    if missing := {"title", "subject"} - content.keys():
        raise BadSuite(f"{file}: no {min(missing)}")
    suite = Suite(name=file.parent.name, **content)
    if bool(suite.tests) == bool(suite.program):
        raise BadSuite(f"{file}: one of tests and program is needed")
    return suite


def read_expected(suite: Suite) -> dict[str, tuple[str, str]]:
    """Test → (outcome, reason) of ``expected.toml``; empty without that file.

    Raises:
        BadSuite: an entry without a reason, or of another outcome than ``failed`` or ``skipped``.
    """
    file = suite.folder / "expected.toml"
    if not file.exists():
        return {}
    found: dict[str, tuple[str, str]] = {}
    for entry in tomllib.loads(file.read_text()).get("exception", ()):
        test, outcome, reason = (str(entry.get(key, "")) for key in ("test", "outcome", "reason"))
        if not test or not reason or outcome not in {"failed", "skipped"}:
            raise BadSuite(f"{file}: {test or 'an exception'} needs test, outcome and reason")
        found[test] = (outcome, reason)
    return found


def read_junit(file: Path) -> list[Case]:
    """The cases of a JUnit file. A failure that pytest expected is one that is known.

    Source: the JUnit schema that pytest's ``junitxml`` plugin writes; an expected failure is a
    ``skipped`` element of type ``pytest.xfail``.
    """
    tree = ET.parse(file)  # noqa: S314 - written by the suite that we started
    return [_case(element) for element in tree.iter("testcase")]


def _case(element: ET.Element) -> Case:
    place = element.get("classname", "").rpartition(".")[2]
    name = element.get("name", "")
    test = f"{place}::{name}" if place else name
    for tag in ("failure", "error"):
        if (bad := element.find(tag)) is not None:
            return Case(test, "failed", bad.get("message") or bad.text or "", expected=False)
    if (left := element.find("skipped")) is not None:
        known = left.get("type") == "pytest.xfail"
        outcome = "failed" if known else "skipped"
        return Case(test, outcome, left.get("message", ""), expected=known)
    return Case(test, "passed")


def judge(cases: Iterable[Case], known: Mapping[str, tuple[str, str]]) -> list[Case]:
    """Compare what came with what was known.

    A case that is known not to pass and does so in the way that is known is expected; every other
    difference, a known exception that passes or that no test has the name of included, is not.
    """
    judged: list[Case] = []
    left = dict(known)
    for case in cases:
        outcome, reason = left.pop(case.test, ("", ""))
        if not outcome:
            judged.append(case)
        elif case.outcome == outcome:
            judged.append(Case(case.test, outcome, reason))
        else:
            said = f"expected to be {outcome}, but it is {case.outcome}: {case.reason}"
            judged.append(Case(case.test, case.outcome, said, expected=False))
    stale = [Case(test, "absent", "expected.toml names it", expected=False) for test in left]
    return judged + stale


def result_of(suite: Suite, cases: list[Case], versions: Mapping[str, str]) -> Result:
    """What the page shows of these cases."""
    passed = sum(case.outcome == "passed" for case in cases)
    exceptions = sorted((c for c in cases if c.outcome != "passed"), key=lambda case: case.test)
    return Result(
        suite=suite.name,
        title=suite.title,
        subject=suite.subject,
        versions=dict(versions),
        total=len(cases),
        passed=passed,
        exceptions=tuple(exceptions),
    )


def less_than_before(result: Result) -> list[Case]:
    """A case that says that a suite passes less than its row tells, if it does.

    A row for other versions tells nothing about these; nor does one that was removed.
    """
    file = RESULTS / f"{result.suite}.json"
    if not file.exists():
        return []
    before = _result(json.loads(file.read_text()))
    if before.versions != result.versions or result.passed >= before.passed:
        return []
    said = f"{result.passed} passed, but {before.passed} of {before.total} did before"
    return [Case("the table", "failed", said, expected=False)]


def write_result(result: Result, into: Path) -> None:
    """Keep a result as JSON."""
    into.parent.mkdir(parents=True, exist_ok=True)
    content = asdict(result)
    for case in content["exceptions"]:
        del case["expected"]
    into.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_results() -> list[Result]:
    """All results that are kept, in the order of the suites' names."""
    return [_result(json.loads(file.read_text())) for file in sorted(RESULTS.glob("*.json"))]


def _result(content: dict[str, object]) -> Result:
    raw = content.pop("exceptions")
    assert isinstance(raw, list)
    return Result(**content, exceptions=tuple(Case(**case) for case in raw))  # type: ignore[arg-type]
