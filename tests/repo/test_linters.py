"""What ``make check`` runs, as tests: a change that a reviewer's tools refuse fails here."""

import pytest

from repo.steps import check


@pytest.mark.ahead("repo.steps:run")
@pytest.mark.timeout(3600)  # each has its own limit, and waits for the others
@pytest.mark.parametrize("name", list(check.STEPS))
def test_step_of_make_check_passes(name, ahead):
    if ahead["skipped"]:
        pytest.skip(ahead["skipped"])
    assert ahead["passed"], ahead["output"]
