import pytest

from tupper.core.userns import free_range, has_range


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann:100000:65536\n", True),
        ("bob:1:65536\nann:100000:65536", True),
        ("1000:100000:65536\n", True),
        ("ann:100000:10\n", False),
        ("anna:100000:65536\n", False),
        ("ann\nann:x:y\n", False),
        ("", False),
    ],
)
def test_whether_a_user_has_subordinate_ids(text, expected):
    assert has_range(text, {"ann", "1000"}) is expected


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", 100_000),
        ("a:100000:65536\n", 165_536),
        ("a:300000:65536\nb:100000:65536", 365_536),
        ("#\n", 100_000),
    ],
)
def test_a_range_that_nobody_has(text, first):
    assert free_range(text) == first
