"""QEMU with KVM, for real: in a machine whose emulated processor has SVM."""

import xml.etree.ElementTree as ET

import pytest

from nested import job


@pytest.mark.ahead("nested.job:short")
@pytest.mark.timeout(job.SHORT_S + 3600)
def test_the_hardware_tier(request, subtests):
    if request.config.getoption("--whole", default=False):
        pytest.skip("a part of the whole")
    report(request.getfixturevalue("ahead"), subtests)


@pytest.mark.timeout(job.WHOLE_S + 600)
def test_the_whole_hardware_tier(request, subtests):
    if not request.config.getoption("--whole", default=False):
        pytest.skip("make nested does it")
    report(job.whole(), subtests)


def report(result, subtests):
    """Each test of the machine as one of this run."""
    if "skipped" in result:
        pytest.skip(result["skipped"])
    assert result["junit"], f"it left no results: {result['said']}"
    cases = list(ET.fromstring(result["junit"]).iter("testcase"))
    assert cases, result["said"]
    for case in cases:
        with subtests.test(msg=f"{case.get('classname')}.{case.get('name')}"):
            for kind in ("failure", "error"):
                for found in case.findall(kind):
                    pytest.fail(found.text or found.get("message"), pytrace=False)
            skipped = case.find("skipped")
            assert skipped is None, skipped.get("message")
