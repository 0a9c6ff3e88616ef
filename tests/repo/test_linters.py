"""What ``make check`` runs, as tests: a change that a reviewer's tools refuse fails here."""

import pytest

from repo.tool import load_tool

check = load_tool("check")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(check.STEPS))
def test_step_of_make_check_passes(name):
    outcome = check.run_step(name)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.passed, outcome.output
