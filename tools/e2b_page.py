"""Makes ``docs/e2b.md`` from what a run of ``tests/e2e/e2b`` recorded.

``ROWS_CALLS=1 ROWS_RECORD=DIR pytest tests/e2e/e2b`` writes a file a way, and
``python tools/e2b_page.py DIR`` makes the page of them. It refuses a record with rows missing, so
the page never says more than was run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tupper

PAGE = Path(__file__).resolve().parent.parent / "docs" / "e2b.md"
WAYS = ("native-sync", "native-async", "new-sync", "new-async", "old-sync", "old-async")
MARKS = {"passed": "yes", "failed": "**no**", "absent": "n/a"}

HEAD = """\
# Code written for E2B

This page is made by `tools/e2b_page.py` from a run of `tests/e2e/e2b`; do not edit it.

There are two ways to run code that was written for E2B:

* **Change the import line.** `from tupper import Sandbox` (or `AsyncSandbox`) in the place of
  `from e2b import Sandbox`. No server, no key.
* **Change nothing.** Run `tupper serve --listen 127.0.0.1:3000`, make a key with
  `tupper key create`, and set `E2B_API_KEY` to it and `E2B_API_URL`, `E2B_SANDBOX_URL` and, for
  volumes, `E2B_VOLUME_API_URL` to `http://127.0.0.1:3000`.

Links of `download_url` and `upload_url` work in both; with the changed import line they lead to an
address on 127.0.0.1 that the first link opens. `get_host` gives an address of this machine with
the changed import line, and `PORT-ID.localhost:3000` from the published SDKs.
"""


def read(directory: Path, way: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The first line of a record, and its rows by name."""
    lines = [json.loads(line) for line in (directory / f"{way}.jsonl").read_text().splitlines()]
    return lines[0], {line["row"]: line for line in lines[1:]}


def title(row: str) -> str:
    """A row's name as words."""
    area, _, rest = row.partition("_")
    area = "answered with a clear refusal" if area == "absent" else area
    return f"{area}: {rest.replace('_', ' ')}"


def render(directory: Path) -> str:
    """The page."""
    records = {way: read(directory, way) for way in WAYS}
    rows = list(records["new-sync"][1])
    for way, (_, found) in records.items():
        if list(found) != rows:
            raise SystemExit(f"{way}: its rows are not those of new-sync")
    javascript, smoke = read(directory, "javascript")
    parts = [HEAD, *_counts(records, javascript, smoke), *_calls(records)]
    parts += [*_table(records, rows), *_javascript(smoke), *_absent(records)]
    return "\n".join(parts) + "\n"


def _counts(records: Any, javascript: dict[str, Any], smoke: dict[str, Any]) -> list[str]:
    lines = ["## What was run", "", "| way | version | passed | failed | not in this SDK |"]
    lines.append("|---|---|---|---|---|")
    for way, (head, found) in records.items():
        outcomes = [row["outcome"] for row in found.values()]
        counts = " | ".join(str(outcomes.count(name)) for name in MARKS)
        lines.append(f"| {way} | {head['version']} | {counts} |")
    good = sum(row["outcome"] == "passed" for row in smoke.values())
    lines.append(f"| javascript | {javascript['version']} | {good} | {len(smoke) - good} | |")
    return lines


# Ways whose calls are shown; each with what its columns say.
CALLED = {
    "new-sync": "unmodified, sync",
    "new-async": "unmodified, async",
    "native-sync": "import changed, sync",
    "native-async": "import changed, async",
}


def _calls(records: Any) -> list[str]:
    """Every public call of the newest SDK, and whether a row that passed made it."""
    known = {way: records[way][0]["calls"] for way in CALLED}
    lines = ["", "## Call by call", "", "Seen while the rows ran: `yes` is a call that a row made"]
    lines += ["and that gave what E2B's gives, `501` one that is refused with the reason, `-` one"]
    lines += ["that no row makes, `n/a` one that this SDK does not have.", ""]
    lines += ["| | " + " | ".join(CALLED.values()) + " |", "|---" * (len(CALLED) + 1) + "|"]
    for call in known["new-sync"]:
        marks = [_mark(_known_as(call, known[way]), records[way][1]) for way in CALLED]
        lines.append(f"| `{call}` | " + " | ".join(marks) + " |")
    return lines


def _known_as(call: str, known: dict[str, list[str]]) -> list[str] | None:
    return known.get(call) or known.get(f"Async{call}")


def _mark(functions: list[str] | None, rows: dict[str, Any]) -> str:
    if functions is None:
        return "n/a"
    made = [
        name
        for name, row in rows.items()
        if row["outcome"] == "passed" and set(functions) & set(row.get("calls", ()))
    ]
    if not made:
        return "-"
    return "501" if all(name.startswith("absent_") for name in made) else "yes"


def _javascript(smoke: dict[str, Any]) -> list[str]:
    lines = ["", "## JavaScript, unmodified", "", "| | |", "|---|---|"]
    return lines + [
        f"| {name.replace('_', ' ')} | {MARKS[row['outcome']]} |" for name, row in smoke.items()
    ]


def _table(records: Any, rows: list[str]) -> list[str]:
    names = {"native": "import changed", "new": "unmodified, newest", "old": "unmodified, 2.45"}
    heads = [f"{names[way.partition('-')[0]]}, {way.partition('-')[2]}" for way in WAYS]
    lines = ["", "## Row by row", "", "| | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(WAYS) + 1) + "|")
    for row in rows:
        marks = [MARKS[found[row]["outcome"]] for _, found in records.values()]
        lines.append(f"| {title(row)} | " + " | ".join(marks) + " |")
    return lines


def _absent(records: Any) -> list[str]:
    there = set(tupper.__all__)
    names = [name for name in records["new-sync"][0]["names"] if name not in there]
    return [
        "",
        "## What is not here",
        "",
        "On `create` the server answers 501 with a message, which the published SDKs raise as a",
        "`SandboxException` without another try, and with the changed import line such calls raise",
        "`UnsupportedException`: `iam`, `mcp`, and of `network`: domains in `allow_out`, `rules`,",
        "`egress_proxy`, `dns_servers`.",
        "",
        "Names of the newest `e2b` package that `tupper` does not have: "
        + ", ".join(f"`{name}`" for name in names)
        + ".",
    ]


def main() -> int:
    """Write the page."""
    PAGE.write_text(render(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
