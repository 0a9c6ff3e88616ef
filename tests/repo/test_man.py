"""The manual page says what the commands say."""

import shutil
import subprocess

import pytest

from repo.tool import ROOT, load_tool

PAGE = ROOT / "docs" / "tupper.1"


def test_the_page_is_fresh():
    assert PAGE.read_text() == load_tool("make_man").render(), "python tools/make_man.py"


def test_the_page_is_what_man_can_read():
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", PAGE],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
