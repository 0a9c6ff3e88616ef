"""QEMU with KVM, for real: in a machine whose emulated processor has SVM."""

import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nested import machine
from nested.image import CannotNest, make_image, why_not

INSIDE = Path(__file__).parent / "inside"
# Two minutes of a processor, for every run of the tests; the rest is for `make nested`.
SHORT = [INSIDE / "test_probe.py", INSIDE / "test_machine.py"]
WHOLE = [INSIDE]
# By the host's clock; a host under load gives it a tenth of a processor.
_SHORT_S, _WHOLE_S = 1500, 7200


@pytest.fixture
def results():
    with tempfile.TemporaryDirectory(prefix="tn-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.timeout(_WHOLE_S + 600)
def test_the_hardware_tier(request, results, subtests):
    if reason := why_not():
        pytest.skip(reason)
    try:
        image = make_image(results)
    except CannotNest as error:
        pytest.skip(str(error))
    whole = request.config.getoption("--whole", default=False)
    script = machine.pytest_script(WHOLE if whole else SHORT)
    said = machine.run(image, results, script, timeout_s=_WHOLE_S if whole else _SHORT_S)
    report(results / "junit.xml", said, subtests)


def report(file, said, subtests):
    """Each test of the machine as one of this run."""
    assert file.exists(), f"it left no results: {said[-4000:]}"
    cases = list(ET.parse(file).iter("testcase"))
    assert cases, said[-4000:]
    for case in cases:
        with subtests.test(msg=f"{case.get('classname')}.{case.get('name')}"):
            for kind in ("failure", "error"):
                for found in case.findall(kind):
                    pytest.fail(found.text or found.get("message"), pytrace=False)
            skipped = case.find("skipped")
            assert skipped is None, skipped.get("message")
