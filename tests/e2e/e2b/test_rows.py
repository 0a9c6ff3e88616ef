"""Code written for E2B, with only the import line changed and with E2B's own SDKs unmodified."""

import os
import re
import sys
from pathlib import Path

import pytest

# The rows are modules of the driver, which runs as a program from this directory.
sys.path.insert(0, str(Path(__file__).parent))

import rows

PYTHON = ("native-sync", "native-async", "new-sync", "new-async", "old-sync", "old-async")
# These do also what is dear; all do for a record, of which tools/e2b_page.py makes a page.
WHOLE = PYTHON if os.environ.get("ROWS_RECORD") else ("native-sync", "new-async", "old-sync")
ROWS = [function.__name__.removeprefix("row_") for function in rows.ROWS]
SMOKE = Path(__file__).with_name("smoke.mjs").read_text()

# The first row of a way waits for all of them, and for the way before it.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    ("row", "way"),
    [(row, way) for row in ROWS for way in PYTHON if way in WHOLE or row not in rows.DEAR],
)
def test_python(outcome, way, row):
    found = outcome(way, row)
    if found["outcome"] == "absent":
        pytest.skip(f"{way}: {found['detail']}")
    assert found["outcome"] == "passed", found["detail"]


@pytest.mark.parametrize("way", ["javascript"])
@pytest.mark.parametrize("row", re.findall(r"^  async (\w+)\(sbx\)", SMOKE, re.MULTILINE))
def test_javascript(outcome, way, row):
    found = outcome(way, row)
    assert found["outcome"] == "passed", found["detail"]
