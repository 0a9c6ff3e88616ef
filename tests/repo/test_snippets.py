"""The Python blocks of README and docs run as they stand."""

import pytest

from repo.tool import load_tool

snippets = load_tool("run_snippets")
BLOCKS = list(snippets.find_snippets())


@pytest.mark.parametrize("snippet", BLOCKS, ids=lambda s: s.name)
def test_block_is_python(snippet):
    assert snippets.check_syntax(snippet) == ""


@pytest.mark.gvisor
@pytest.mark.timeout(400)
@pytest.mark.parametrize("snippet", [s for s in BLOCKS if s.runs], ids=lambda s: s.name)
def test_block_runs(snippet):
    assert snippets.run_snippet(snippet) == ""
