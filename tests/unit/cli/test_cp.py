"""Which side of a copy is inside."""

import click
import pytest

from tupper.cli.cp import Place, parse_place, safe_name


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("id:/a/b", Place("id", "/a/b")),
        ("my-box.1:rel", Place("my-box.1", "rel")),
        ("id:", Place("id", ".")),
        ("id:/with:colon", Place("id", "/with:colon")),
        ("./a:b", Place("", "./a:b")),
        ("/a", Place("", "/a")),
        ("-", Place("", "-")),
    ],
)
def test_places(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize("path", ["/", ".", "..", "a/..", "x/."])
def test_a_path_inside_without_a_name_never_names_a_file_here(path):
    with pytest.raises(click.UsageError, match="has no name"):
        safe_name(Place("id", path))
