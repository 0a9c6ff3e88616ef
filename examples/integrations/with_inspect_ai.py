"""An evaluation of Inspect AI whose samples work in sandboxes.

Needs ``pip install 'tupper[inspect-ai]'``. The model is a script, so that this runs without a key;
pass the name of a model (``anthropic/claude-sonnet-4-5``) to use that.
"""

import sys
import tempfile

from inspect_ai import Task, eval  # noqa: A004 - its name
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash

SCRIPT = [
    ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "wc -l < numbers.txt"}),
    ModelOutput.from_content("mockllm/model", "The file has 3 lines."),
]
for output in SCRIPT:
    output.usage = ModelUsage()  # otherwise they are counted, with what is to be downloaded


def main() -> None:
    name = sys.argv[1] if sys.argv[1:] else ""
    model = get_model(name) if name else get_model("mockllm/model", custom_outputs=SCRIPT)
    sample = Sample(
        input="How many lines has numbers.txt?", target="3", files={"numbers.txt": "1\n2\n3\n"}
    )
    task = Task(
        dataset=[sample],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=includes(),
        sandbox="tupper",
    )
    with tempfile.TemporaryDirectory() as logs:
        (log,) = eval(task, model=model, log_dir=logs, display="none")
        print(log.status, log.results.scores[0].metrics["accuracy"].value)
        print([message.text for message in log.samples[0].messages if message.role == "tool"])


if __name__ == "__main__":
    main()
