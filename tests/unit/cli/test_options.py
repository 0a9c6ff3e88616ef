"""How values on the command line are read."""

import math

import click
import pytest

from tupper.cli._options import Pair, Span, creation_arguments, read_mount, read_port


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (" 5M ", 300), (7, 7)],
)
def test_lengths_of_time(text, seconds):
    assert Span().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 weeks", "1e3", "never"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(click.BadParameter, match="is not a length of time"):
        Span().convert(text, None, None)


def test_never_where_it_is_allowed():
    assert math.isinf(Span(may_be_never=True).convert("never", None, None))


def test_pairs_keep_later_equals_signs():
    assert Pair().convert("A=b=c", None, None) == ("A", "b=c")
    assert Pair().convert("A=", None, None) == ("A", "")


@pytest.mark.parametrize("text", ["A", "=b", ""])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        Pair().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("./a:/b", ("./a", "/b", False)),
        ("/a:/b:ro", ("/a", "/b", True)),
        ("/a:/b:rw", ("/a", "/b", False)),
    ],
)
def test_mounts(text, expected):
    host, guest, read_only = expected
    mount = read_mount(text)
    assert (mount.host_path, mount.guest_path, mount.read_only) == (host, guest, read_only)


@pytest.mark.parametrize("text", ["/a", "/a:b", ":/b", "/a:/b:x", "/a:"])
def test_what_is_no_mount_is_refused(text):
    with pytest.raises(click.BadParameter, match="HOST:GUEST"):
        read_mount(text)


def test_ports():
    assert read_port("8000") == (8000, 0)
    assert read_port("80:8000") == (8000, 80)
    for text in ("", "x", "1:", "a:1", "1:2:3"):
        with pytest.raises(click.BadParameter):
            read_port(text)


def test_only_what_was_given_becomes_an_argument():
    assert creation_arguments({"template": None, "envs": (), "ports": (), "internet": None}) == {}
    arguments = creation_arguments(
        {
            "image": "x",
            "envs": (("A", "b"),),
            "labels": (("l", "1"),),
            "ports": ("80:8000",),
            "internet": False,
        }
    )
    assert arguments == {
        "image": "x",
        "envs": {"A": "b"},
        "metadata": {"l": "1"},
        "ports": {8000: 80},
        "allow_internet_access": False,
    }
