import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.errors import InvalidArgument
from tupper.protocol.e2b import parse_time
from tupper.protocol.logs import parse_log, parse_query, render_entry, render_line, select

LOG = """\
before any time
2026-01-02T03:04:05.250Z agent.started version=0.6.13 pid=1
2026-01-02T03:04:06.000Z clock.step_refused difference_ms=7 error="not permitted"
two words
2026-01-02T03:04:07.000Z hold.end why=release
"""
AT = parse_time("2026-01-02T03:04:05.250Z")


def lines(**query):
    found = select(parse_log(LOG, 1.0), parse_query({k: str(v) for k, v in query.items()}))
    return [entry.line.split(" ")[0] for entry in found]


def test_entries():
    first, started, refused, *_ = parse_log(LOG, 1.0)
    assert (first.at, first.line, first.fields) == (1.0, "before any time", {})
    assert (started.at, started.fields) == (AT, {"version": "0.6.13", "pid": "1"})
    assert (refused.level, refused.fields["error"]) == ("error", "not permitted")
    assert render_entry(refused) == {
        "timestamp": "2026-01-02T03:04:06.000000Z",
        "message": 'clock.step_refused difference_ms=7 error="not permitted"',
        "level": "error",
        "fields": {"difference_ms": "7", "error": "not permitted"},
    }
    assert set(render_line(first)) == {"timestamp", "line"}


def test_queries():
    assert lines(limit=2) == ["before", "agent.started"]
    assert lines(limit=2, direction="backward") == ["hold.end", "two"]
    assert lines(level="warn") == ["clock.step_refused"]
    assert lines(search="WORDS") == ["two"]
    at = round(AT * 1000)
    assert lines(cursor=at + 1) == ["clock.step_refused", "two", "hold.end"]
    assert lines(cursor=at, direction="backward") == ["agent.started", "before"]
    assert lines(limit=0) == []


@pytest.mark.parametrize(
    "query",
    [{"direction": "up"}, {"level": "loud"}, {"limit": "-1"}, {"limit": "1001"}, {"cursor": "now"}],
)
def test_unknown_values(query):
    with pytest.raises(InvalidArgument):
        parse_query(query)


@given(st.text())
def test_any_text_is_a_log(text):
    for entry in parse_log(text, 0.0):
        render_entry(entry)
