"""Harbor runs a task by its oracle in its own environment for E2B, with ``tupper serve`` as E2B."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from e2b import Sandbox

TASKS = Path(__file__).parent / "tasks"
HARBOR = Path(sys.executable).parent / "harbor"


@pytest.mark.parametrize("task", ["answer", "offline"])
def test_the_oracle_is_rewarded(task, tmp_path, e2b_environment):
    done = subprocess.run(
        [HARBOR, "run", "-p", TASKS / task, "-a", "oracle", "-e", "e2b", "-o", tmp_path, "-n", "1"],
        env=e2b_environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    results = [json.loads(file.read_text()) for file in tmp_path.rglob("result.json")]
    errors = [result["exception_info"] for result in results if result.get("exception_info")]
    rewards = [file.read_text().strip() for file in tmp_path.rglob("verifier/reward.txt")]
    assert errors == []
    assert rewards == ["1"], said
    assert not Sandbox.list().next_items()
