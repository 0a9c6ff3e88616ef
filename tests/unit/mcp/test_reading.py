"""Lines of files, edits, and what grep and find print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.mcpserver.exceptions import ToolError

from tupper.mcp.reading import Lines
from tupper.mcp.searching import (
    Search,
    parse_lines,
    parse_names,
    parse_plain_lines,
    render_plain_search,
    render_search,
)
from tupper.mcp.tools_files import replace


def lines_of(data, start, limit, *, step=7, most=1000):
    lines = Lines(start, limit, most)
    for at in range(0, len(data), step):
        lines.feed(data[at : at + step])
        if lines.is_full:
            return lines
    lines.feed(b"", final=True)
    return lines


def test_some_lines_and_where_the_next_begin():
    lines = lines_of(b"one\ntwo\nthree\nfour\n", 1, 2)
    assert (lines.text, lines.next_line, lines.is_full) == ("two\nthree\n", 3, True)


def test_the_end_is_known():
    lines = lines_of(b"one\ntwo", 0, 2)
    assert (lines.text, lines.is_full) == ("one\ntwo", False)
    assert lines_of(b"one\ntwo\n", 5, 2).text == ""


def test_a_line_that_is_too_long_is_cut():
    lines = lines_of(b"x" * 100 + b"\nnext\n", 0, 5, most=30)
    assert (lines.text, lines.is_cut, lines.is_full) == ("x" * 30, True, True)
    assert lines.next_line == 1


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029",
                                   blacklist_categories=["Cs"]), max_size=9)),
    st.integers(1, 9), st.integers(1, 5),
)  # fmt: skip
def test_pages_of_lines_give_the_file(rows, step, limit):
    whole = "".join(f"{row}\n" for row in rows)
    read, start = "", 0
    while True:
        lines = lines_of(whole.encode(), start, limit, step=step, most=10_000)
        read += lines.text
        if not lines.is_full:
            break
        start = lines.next_line
    assert read == whole


def test_other_separators_than_line_feeds_are_characters():
    text = "a\x0cb\u2028c\rd\r\ne\n"
    lines = lines_of(text.encode(), 0, 2, step=1000)
    assert lines.text == text
    assert lines.next_line == 2


def test_an_edit_needs_a_unique_place():
    assert replace("a b c", "b", "x", "f", every=False) == ("a x c", 1)
    assert replace("b b", "b", "x", "f", every=True) == ("x x", 2)
    with pytest.raises(ToolError, match="2 times in f, on lines 1, 3"):
        replace("b\n\nb\n", "b", "x", "f", every=False)
    with pytest.raises(ToolError, match="not found in f: "):
        replace("a", "b", "x", "f", every=False)
    with pytest.raises(ToolError, match="with other blanks"):
        replace("if x:\n\treturn 1", "if x:\n    return 1", "x", "f", every=False)


def test_paths_may_hold_anything_but_nul():
    assert [(m.path, m.line, m.text) for m in parse_lines("a:1:b\x007:x: y\nBinary\n")] == [
        ("a:1:b", 7, "x: y")
    ]
    assert [m.path for m in parse_names("./a\nb\0./c\0")] == ["./a\nb", "./c"]
    assert [(m.path, m.line, m.text) for m in parse_plain_lines("./a:3:b: 4:c\nnothing\n")] == [
        ("./a", 3, "b: 4:c")
    ]


@pytest.mark.parametrize("render", [render_search, render_plain_search])
def test_what_is_searched_for_is_never_an_option(render):
    argv = render(Search("-rf", "*.py", "-x", literal=True))
    assert argv[argv.index("-rf") - 1] == "-e"
    assert "-F" in argv
    assert argv[-2:] == ["--", "-x"] or argv[1] == "./-x"


def test_names_are_searched_with_find():
    argv = render_search(Search(None, "*.py", "src", ignore_case=True))
    assert argv[:2] == ["find", "src"]
    assert argv[-3:] == ["-iname", "*.py", "-print0"]
