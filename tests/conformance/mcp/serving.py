"""Servers for the judges, and their cases as JUnit."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
PRODUCT = (sys.executable, "-m", "tupper", "mcp")
FIXTURES = (sys.executable, str(HERE / "fixtures.py"))
NODE = os.environ.get("CONFORMANCE_NODE", "node")
PACKAGES = Path(os.environ.get("CONFORMANCE_NPM", ".")) / "node_modules"
OUT = Path(os.environ.get("CONFORMANCE_OUT", "out"))


@contextlib.contextmanager
def over_http(*command):
    """A server that says its URL on standard error; what else it says goes to a file."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        said = server.stderr.readline()
        with (OUT / "server.txt").open("w") as log:
            copying = subprocess.Popen(["cat"], stdin=server.stderr, stdout=log)
        try:
            yield re.search(r"http://\S+", said)[0]
        finally:
            server.terminate()
            server.wait(timeout=60)
            copying.wait(timeout=60)


def write_junit(cases):
    """(scenario, check, outcome, message) each, where the outcome is passed, failed or skipped."""
    suite = ET.Element("testsuite", name="mcp", tests=str(len(cases)))
    for scenario, check, outcome, message in cases:
        case = ET.SubElement(suite, "testcase", classname=scenario, name=check)
        if outcome != "passed":
            tag = "skipped" if outcome == "skipped" else "failure"
            ET.SubElement(case, tag, message=re.sub(r"[^\x20-\x7e]+", " ", message)[:1000])
    ET.ElementTree(suite).write(os.environ["CONFORMANCE_JUNIT"], encoding="unicode")
