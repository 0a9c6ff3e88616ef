"""Makes ``docs/conformance.md`` and the README's table from what ``make conformance`` found.

``python tools/conformance_page.py`` writes both, ``--check`` only says whether they are fresh. The
results lie in ``tests/conformance/results``, a file a suite, written by runs in which nothing
unexpected happened.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from conformance_suites import ROOT, Case, Result, read_results

PAGE = ROOT / "docs" / "conformance.md"
README = ROOT / "README.md"
BEGIN = "<!-- conformance: made by tools/conformance_page.py -->\n"
END = "<!-- end of conformance -->\n"

HEAD = """\
# Conformance

This page is made by `tools/conformance_page.py` from the results of `make conformance`; do not edit
it.

Each row is a test suite that somebody else wrote, at the version that is named, run against tupper
without changes to the suite; or, where it says so, tests of ours that go through somebody else's
package, which is not changed either. Everything that does not pass is listed below with its reason;
a run fails if anything else fails, and also if something that is listed passes. `make conformance`
runs all of them, each in an environment of its own, and `python tools/conformance.py NAME` one.
"""


def render_table(results: Iterable[Result]) -> str:
    """The rows of all suites."""
    lines = ["| Suite | Judges | Version | Passed |", "|---|---|---|---|"]
    for result in results:
        versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        row = (result.title, result.subject, versions, f"{result.passed} of {result.total}")
        lines.append("| " + " | ".join(map(_cell, row)) + " |")
    return "\n".join(lines) + "\n"


def render_page(results: list[Result]) -> str:
    """The page: the table, then each suite's exceptions, those of one reason together."""
    parts = [HEAD, render_table(results)]
    parts += [f"## {r.title}\n\n{_exceptions(r.exceptions)}" for r in results if r.exceptions]
    return "\n".join(parts)


def _exceptions(cases: Iterable[Case]) -> str:
    def by(case: Case) -> tuple[str, str]:
        return case.reason, case.outcome

    lines = ["| Not passed | Why |", "|---|---|"]
    for (reason, outcome), group in groupby(sorted(cases, key=by), key=by):
        names = ", ".join(f"`{case.test}`" for case in group)
        said = f"skipped: {reason}" if outcome == "skipped" else reason
        lines.append(f"| {_cell(names)} | {_cell(said)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def render_readme(readme: str, results: list[Result]) -> str:
    """The README with its table renewed.

    Raises:
        ValueError: it has no place for the table.
    """
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"README.md has no lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + "\n" + render_table(results) + "\n" + END + after


def pages() -> dict[Path, str]:
    """What the two files should hold."""
    results = read_results()
    return {
        PAGE: render_page(results),
        README: render_readme(README.read_text(), results),
    }


def main(arguments: list[str]) -> int:
    """Write both files, or compare them."""
    stale: list[str] = []
    for file, wanted in pages().items():
        if file.exists() and file.read_text() == wanted:
            continue
        stale.append(file.name)
        if "--check" not in arguments:
            file.write_text(wanted)
    if stale and "--check" in arguments:
        print(f"not fresh: {' '.join(stale)}; run tools/conformance_page.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
