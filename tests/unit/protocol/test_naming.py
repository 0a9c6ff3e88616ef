import uuid

import pytest

from tupper.core.errors import InvalidArgument
from tupper.protocol.naming import check_tag, parse_template

BUILD = str(uuid.UUID(int=7))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("base", ("base", "default")),
        ("Mine:V1", ("mine", "v1")),
        (f"mine:{BUILD}", ("mine", BUILD)),
        ("code-interpreter-v1", ("code-interpreter", "default")),
    ],
)
def test_what_names_a_template(text, parts):
    assert parse_template(text) == parts


@pytest.mark.parametrize("text", ["", ":v1", "mine:", "mine:a b", "a/b", "mine:v1:v2"])
def test_what_names_none(text):
    with pytest.raises(InvalidArgument):
        parse_template(text)


def test_no_tag_looks_like_a_build():
    with pytest.raises(InvalidArgument, match="build's id"):
        check_tag(BUILD)
