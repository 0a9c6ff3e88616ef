"""What runs in the outer machine, and its results."""

import tempfile
from pathlib import Path

from nested import machine
from nested.image import CannotNest, make_image, why_not

INSIDE = Path(__file__).parent / "inside"
# Two minutes of a processor, for every run of the tests; the rest is for `make nested`.
SHORT = [INSIDE / "test_probe.py", INSIDE / "test_machine.py"]
WHOLE = [INSIDE]
# By the host's clock; a host under load gives it a tenth of a processor.
SHORT_S, WHOLE_S = 1500, 7200
_MACHINES = 4


def short():
    """What matters most."""
    return run(SHORT, SHORT_S)


def whole():
    """All of it."""
    return run(WHOLE, WHOLE_S)


def run(tests, timeout_s):
    """Run them. ``junit`` is their report; without one, ``said`` is all that there is."""
    if reason := why_not():
        return {"skipped": reason}
    for _ in range(_MACHINES):
        try:
            return _run_once(tests, timeout_s)
        except machine.StoodStill:
            print("nested: the emulator stood still; another machine does it all again")
    return {"said": f"the emulator stood still in {_MACHINES} of {_MACHINES} machines", "junit": ""}


def _run_once(tests, timeout_s):
    with tempfile.TemporaryDirectory(prefix="tn-", dir="/tmp") as name:
        results = Path(name)
        try:
            image = make_image(results)
        except CannotNest as error:
            return {"skipped": str(error)}
        said = machine.run(image, results, machine.pytest_script(tests), timeout_s=timeout_s)
        report = results / "junit.xml"
        return {"said": said[-4000:], "junit": report.read_text() if report.exists() else ""}
