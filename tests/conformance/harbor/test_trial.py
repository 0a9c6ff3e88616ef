"""Harbor runs tasks by its oracle, an agent that executes the task's own solution."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tupper import Sandbox

TASKS = Path(__file__).parent / "tasks"
HARBOR = Path(sys.executable).parent / "harbor"


@pytest.mark.parametrize("task", ["answer", "offline"])
def test_the_oracle_is_rewarded(task, tmp_path):
    environment = "tupper.integrations.harbor:TupperEnvironment"
    command = [HARBOR, "run", "-p", TASKS / task, "-a", "oracle", "-e", environment]
    done = subprocess.run(
        [*command, "-o", tmp_path, "-n", "1"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    rewards = [file.read_text().strip() for file in tmp_path.rglob("verifier/reward.txt")]
    results = [json.loads(file.read_text()) for file in tmp_path.rglob("result.json")]
    errors = [result["exception_info"] for result in results if result.get("exception_info")]
    assert rewards == ["1"], (errors, said)
    assert errors == []
    assert not Sandbox.list().next_items()
