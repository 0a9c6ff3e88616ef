"""The frame of the suites that others wrote: what is known, what is not, what the page says."""

import pytest

from repo.tool import load_tool

suites = load_tool("conformance_suites")
page = load_tool("conformance_page")

JUNIT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" tests="5">
<testcase classname="t.test_a.TestIt" name="test_good" time="0.1"/>
<testcase classname="t.test_a.TestIt" name="test_bad"><failure message="no">trace</failure></testcase>
<testcase classname="t.test_a.TestIt" name="test_broken"><error message="fixture">t</error></testcase>
<testcase classname="test_a" name="test_left"><skipped type="pytest.skip" message="root"/></testcase>
<testcase classname="test_a" name="test_old"><skipped type="pytest.xfail" message="stale"/></testcase>
</testsuite></testsuites>
"""


def write_suite(tmp_path, text):
    file = tmp_path / "one" / "suite.toml"
    file.parent.mkdir()
    file.write_text(text)
    return file


def test_every_suite_says_what_it_must_and_pins_what_it_shows():
    runner = load_tool("conformance_run")
    for suite in suites.find_suites().values():
        assert set(runner.versions(suite)) == set(suite.shows)
        suites.read_expected(suite)
        for name in (*suite.tests, suite.program):
            assert (suite.folder / name).exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 'a'\nsubject = 'b'\ncolour = 'c'\ntests = ['t']", "unknown field colour"),
        ("title = 'a'\ntests = ['t']", "no subject"),
        ("title = 'a'\nsubject = 'b'\ntests = 't'", "tests is 't'"),
        ("title = 'a'\nsubject = 'b'", "tests and program"),
        ("title = 'a'\nsubject = 'b'\ntests = ['t']\nprogram = 'p'", "tests and program"),
    ],
)
def test_a_bad_suite_is_refused_with_the_field(tmp_path, text, says):
    with pytest.raises(suites.BadSuite, match=says):
        suites.read_suite(write_suite(tmp_path, text))


@pytest.mark.parametrize("left_out", ["test", "outcome", "reason"])
def test_a_known_exception_needs_its_reason(tmp_path, monkeypatch, left_out):
    monkeypatch.setattr(suites, "SUITES", tmp_path)
    suite = suites.read_suite(
        write_suite(tmp_path, "title = 'a'\nsubject = 'b'\ntests = ['t']")
    )  # fmt: skip
    lines = {"test": "TestIt::test_bad", "outcome": "failed", "reason": "because"}
    del lines[left_out]
    text = "[[exception]]\n" + "".join(f'{key} = "{value}"\n' for key, value in lines.items())
    (suite.folder / "expected.toml").write_text(text)
    with pytest.raises(suites.BadSuite, match="needs test, outcome and reason"):
        suites.read_expected(suite)


def judged(tmp_path, known):
    file = tmp_path / "junit.xml"
    file.write_text(JUNIT)
    return {case.test: case for case in suites.judge(suites.read_junit(file), known)}


def test_what_is_not_known_is_a_surprise(tmp_path):
    cases = judged(tmp_path, {})
    surprises = {name for name, case in cases.items() if not case.expected}
    assert surprises == {"TestIt::test_bad", "TestIt::test_broken", "test_a::test_left"}
    assert cases["test_a::test_old"].outcome == "failed"
    assert cases["test_a::test_old"].reason == "stale"


def test_what_is_known_is_none_and_shows_its_reason(tmp_path):
    known = {
        "TestIt::test_bad": ("failed", "one reason"),
        "TestIt::test_broken": ("failed", "another"),
        "test_a::test_left": ("skipped", "a third"),
    }
    cases = judged(tmp_path, known)
    assert all(case.expected for case in cases.values())
    assert cases["TestIt::test_bad"].reason == "one reason"


@pytest.mark.parametrize(
    ("test", "outcome"), [("TestIt::test_good", "failed"), ("TestIt::test_bad", "skipped")]
)
def test_another_outcome_than_the_known_one_is_a_surprise(tmp_path, test, outcome):
    case = judged(tmp_path, {test: (outcome, "because")})[test]
    assert not case.expected
    assert f"expected to be {outcome}" in case.reason


def test_a_known_exception_that_no_test_has_is_a_surprise(tmp_path):
    case = judged(tmp_path, {"TestIt::test_gone": ("failed", "because")})["TestIt::test_gone"]
    assert (case.outcome, case.expected) == ("absent", False)


def test_results_are_kept_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "RESULTS", tmp_path)
    suite = suites.Suite(name="one", title="A suite", subject="`ours`")
    known = dict.fromkeys(("TestIt::test_bad", "TestIt::test_broken"), ("failed", "a | b"))
    known["test_a::test_left"] = ("skipped", "root")
    cases = list(judged(tmp_path, known).values())
    result = suites.result_of(suite, cases, {"judge": "1.2"})
    suites.write_result(result, tmp_path / "one.json")
    assert suites.read_results() == [result]
    text = page.render_page([result])
    assert "| A suite | `ours` | judge 1.2 | 1 of 5 |" in text
    assert "| `TestIt::test_bad`, `TestIt::test_broken` | a \\| b |" in text
    assert "| `test_a::test_left` | skipped: root |" in text


@pytest.mark.parametrize(
    ("versions", "passed", "falls"),
    [({"judge": "1"}, 2, True), ({"judge": "1"}, 3, False), ({"judge": "2"}, 2, False)],
)
def test_a_suite_that_passes_less_than_its_row_tells_is_a_surprise(
    tmp_path, monkeypatch, versions, passed, falls
):
    monkeypatch.setattr(suites, "RESULTS", tmp_path)
    suites.write_result(suites.Result("one", "t", "s", {"judge": "1"}, 3, 3), tmp_path / "one.json")
    now = suites.Result("one", "t", "s", versions, passed, passed)
    assert [case.expected for case in suites.less_than_before(now)] == [False] * falls
    assert suites.less_than_before(suites.Result("two", "t", "s", {}, 0, 0)) == []


def test_the_readme_keeps_everything_but_the_table():
    old = f"a\n{page.BEGIN}old{page.END}b\n"
    new = page.render_readme(old, [])
    assert new.startswith(f"a\n{page.BEGIN}")
    assert new.endswith(f"{page.END}b\n")
    assert "old" not in new
    with pytest.raises(ValueError, match="no lines"):
        page.render_readme("nothing", [])
