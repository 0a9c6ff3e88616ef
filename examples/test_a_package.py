"""Run the test suite of somebody else's package under its own kernel.

``python examples/test_a_package.py`` takes the source distribution of a real package, uploads the
tree, installs what it needs inside, runs its tests inside with live output, and brings the JUnit
file back. Nothing of the package runs on this machine: only its archive is fetched and unpacked.
"""

import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from pip._internal.models.index import PyPI

from tupper import CommandExitException, Sandbox

PROJECT, VERSION = "itsdangerous", "2.2.0"
PACKAGE = f"{PROJECT}-{VERSION}"
SHA256 = "e0050c0b7da1eea53ffaf149c0cfbb5c6e2e2b69c4bef22c81fa6eb73e5f6173"
NEEDS = "pytest freezegun"
TREE = "/home/user/package"
REPORT = "/home/user/junit.xml"

steps: list[tuple[str, float]] = []


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Say what happens, and remember how long it took."""
    print(f"--- {name}", flush=True)
    started = time.perf_counter()
    yield
    steps.append((name, time.perf_counter() - started))


def index_url() -> str:
    """The package index that pip uses here."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return os.environ.get("PIP_INDEX_URL") or found or PyPI.simple_url


def find_archive() -> str:
    """The URL of the source distribution, as the index gives it."""
    page = urllib.parse.urljoin(index_url().rstrip("/") + "/", f"{PROJECT}/")
    with urllib.request.urlopen(page, timeout=60) as answer:
        text = answer.read().decode()
    link = re.search(rf'href="([^"#]*/{PACKAGE}\.tar\.gz)[#"]', text)
    if link is None:
        sys.exit(f"error: {page} has no {PACKAGE}.tar.gz")
    return urllib.parse.urljoin(page, link[1])


def fetch(directory: Path) -> Path:
    """Download the source distribution and unpack it; the tree.

    Not with pip: that would run the package's build backend here to learn its metadata.
    """
    try:
        with urllib.request.urlopen(find_archive(), timeout=60) as answer:
            content = answer.read()
    except OSError as error:
        sys.exit(f"error: cannot fetch {PACKAGE}: {error}")
    if hashlib.sha256(content).hexdigest() != SHA256:
        sys.exit(f"error: {PACKAGE}.tar.gz is not what it was")
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(directory, filter="data")
    return directory / PACKAGE


def show(text: str) -> None:
    """Output of the sandbox as it comes."""
    print(text, end="", flush=True)


def run_tests(sbx: Sandbox) -> int:
    """Run the suite; its exit code. Failing tests are a result, not an error."""
    command = f"cd {TREE} && python3 -m pytest -q -o filterwarnings=default --junitxml={REPORT}"
    try:
        sbx.commands.run(command, on_stdout=show, on_stderr=show, timeout=300)
    except CommandExitException as failed:
        return failed.exit_code
    return 0


def main() -> int:
    """Fetch, create, upload, install, test, download; then the summary."""
    with tempfile.TemporaryDirectory() as scratch:
        with step(f"download {PACKAGE}"):
            tree = fetch(Path(scratch))
        with step("create a sandbox"):
            sbx = Sandbox.create(timeout=600)
        with sbx:
            with step("upload the tree"):
                sbx.files.upload(tree, TREE)
            with step("install what it needs, inside"):
                # No virtual environment: the sandbox is one.
                pip = "pip install --quiet --disable-pip-version-check"
                sbx.commands.run(f"{pip} {NEEDS} {TREE}", timeout=300, on_stderr=show)
            with step("run its tests, inside"):
                code = run_tests(sbx)
            with step("download the JUnit file"):
                report = ET.fromstring(sbx.files.read(REPORT))
    # The report comes from untrusted code: the parser above resolves no outside entities, and
    # expat limits how far entities may grow.
    suite = report if report.tag == "testsuite" else report.find("testsuite")
    if suite is None:
        sys.exit("the JUnit file has no test suite in it")
    counts = {
        name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    }
    print("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()))
    for name, seconds in steps:
        print(f"{seconds:7.2f} s  {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
