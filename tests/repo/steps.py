"""One step of ``make check``, for who cannot wait for it."""

from repo.tool import load_tool

check = load_tool("check")


def run(name):
    """Its outcome."""
    outcome = check.run_step(name)
    return {"skipped": outcome.skipped, "passed": outcome.passed, "output": outcome.output}
