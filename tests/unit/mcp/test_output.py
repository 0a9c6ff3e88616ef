"""Output that is kept in both its ends and read in pages."""

from hypothesis import given
from hypothesis import strategies as st

from tupper.mcp.output import Stream, excerpt


def stream_of(*pieces, limit):
    stream = Stream(limit)
    for piece in pieces:
        stream.add(piece)
    return stream


def test_pages_follow_one_another():
    stream = stream_of("abc", "def", "ghij", limit=100)
    first = stream.page(0, 4)
    assert (first.text, first.start, first.end, first.skipped) == ("abcd", 0, 4, 0)
    assert stream.page(first.end, 100).text == "efghij"
    assert stream.page(10, 5).text == ""


def test_the_middle_is_dropped_and_its_place_is_known():
    stream = stream_of("0123456789" * 10, "x" * 10, "y" * 10, limit=20)
    assert stream.size == 120
    assert stream.page(0, 100).text == "0123456789"
    beyond = stream.page(10, 100)
    assert beyond.text == "y" * 10
    assert (beyond.start, beyond.skipped) == (110, 100)


def test_positions_behind_the_end_give_nothing():
    page = stream_of("abc", limit=100).page(50, 10)
    assert (page.text, page.start, page.end, page.skipped) == ("", 3, 3, 0)


@given(st.lists(st.text(max_size=30)), st.integers(1, 60), st.integers(2, 200))
def test_reading_by_pages_gives_all_that_is_kept(pieces, step, limit):
    stream, whole = stream_of(*pieces, limit=limit), "".join(pieces)
    read, at = "", 0
    while at < stream.size:
        page = stream.page(at, step)
        assert page.text == whole[page.start : page.end]
        assert page.start == at + page.skipped
        read += page.text
        at = page.end
    assert stream.size == len(whole)
    if len(whole) <= limit:
        assert read == whole
    assert whole.endswith(read[-1:])


def test_an_excerpt_shows_both_ends_and_what_is_between():
    shown = excerpt(stream_of("a" * 50, "b" * 50, limit=1000), 40)
    assert shown.text.startswith("a" * 10)
    assert shown.text.endswith("b" * 30)
    assert (shown.cut, shown.cut_at) == (60, 10)
    assert "60 characters" in shown.text
    whole = excerpt(stream_of("abc", limit=1000), 40)
    assert (whole.text, whole.cut) == ("abc", 0)


def test_the_last_line_is_not_an_empty_one():
    assert stream_of("one\ntwo\n\n  \n", limit=100).last_line() == "two"
    assert stream_of("x" * 5000, limit=9000).last_line() == "x" * 200
    assert stream_of(limit=100).last_line() == ""
