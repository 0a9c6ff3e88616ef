"""Following a log that is asked for again and again."""

import pytest

from tupper.cli.logs import news


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("", "a", "a"),
        ("a\n", "a\nb\n", "b\n"),
        ("a", "a", ""),
        ("x" * 256 + "tail", "tail more", " more"),
        ("gone", "new", "new"),
    ],
)
def test_only_what_is_new_is_printed(before, after, new):
    assert news(before, after) == new
