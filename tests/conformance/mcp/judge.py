"""Run ``@modelcontextprotocol/conformance`` for one version of the protocol.

``judge.py fixtures VERSION`` judges what a server for the suite can do on our transport, ``judge.py
server VERSION`` the server that people get. Each check is a case; a warning counts as a failure.
"""

import json
import re
import shutil
import subprocess
import sys

from serving import FIXTURES, NODE, OUT, PACKAGES, PRODUCT, over_http, write_junit

LISTEN = ("--http", "--listen", "127.0.0.1:0", "--template", "minimal")
# Scenarios that call a tool of the fixtures and take an answer about an unknown tool for one.
BY_ACCIDENT = (
    "tools-call-simple-text",
    "tools-call-error",
    "input-required-result-missing-input-response",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
)
NOT_ASKED = (
    "it calls a tool that only the fixtures have; the answer about an unknown tool passes it"
)


def main(what, version):
    results = OUT / "checks"
    shutil.rmtree(results, ignore_errors=True)
    program = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with over_http(*(FIXTURES if what == "fixtures" else (*PRODUCT, *LISTEN))) as url:
        suite = ("--suite", "all", "--spec-version", version, "-o", str(results))
        subprocess.run([NODE, program, "server", "--url", url, *suite], check=False)
    cases = [case for file in sorted(results.glob("*/checks.json")) for case in cases_of(file)]
    if what == "server":
        cases = [without_accidents(case) for case in cases]
    write_junit(cases)


def cases_of(file):
    scenario = re.fullmatch(r"server-(.*)-\d{4}-\d\d-\d\dT.*", file.parent.name)[1]
    seen = {}
    for check in json.loads(file.read_text()):
        if check["status"] == "INFO":
            continue
        number = seen[check["id"]] = seen.get(check["id"], 0) + 1
        name = check["id"] if number == 1 else f"{check['id']} ({number})"
        outcome = {"SUCCESS": "passed", "SKIPPED": "skipped"}.get(check["status"], "failed")
        yield scenario, name, outcome, check.get("errorMessage") or check["status"]


def without_accidents(case):
    scenario, check, outcome, _ = case
    if scenario in BY_ACCIDENT and outcome == "passed" and not check.startswith("wire-schema"):
        return scenario, check, "skipped", NOT_ASKED
    return case


if __name__ == "__main__":
    main(*sys.argv[1:])
