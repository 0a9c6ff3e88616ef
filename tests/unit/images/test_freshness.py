"""A kept value is made anew exactly when a file behind it changed."""

import pytest

from tupper.images.freshness import Kept


@pytest.fixture
def place(tmp_path):
    (tmp_path / "recipe" / "files" / "etc").mkdir(parents=True)
    (tmp_path / "recipe" / "template.toml").write_text("a")
    (tmp_path / "recipe" / "files" / "etc" / "profile").write_text("b")
    return tmp_path / "recipe"


def _changes():
    return {
        "nothing": lambda p: None,
        "content": lambda p: (p / "files" / "etc" / "profile").write_text("c"),
        "mode": lambda p: (p / "files" / "etc" / "profile").chmod(0o755),
        "new file": lambda p: (p / "files" / "etc" / "motd").touch(),
        "gone": lambda p: (p / "files" / "etc" / "profile").unlink(),
        "renamed": lambda p: (p / "template.toml").rename(p / "other.toml"),
        "link": lambda p: (p / "files" / "x").symlink_to("etc/profile"),
    }


@pytest.mark.parametrize("change", _changes())
def test_a_change_of_any_file_counts(place, change):
    made, kept = [], Kept()

    def look():
        return kept.get("x", (place, place / "absent"), lambda: made.append(1) or len(made))

    assert look() == look() == 1
    _changes()[change](place)
    assert look() == (1 if change == "nothing" else 2)


def test_a_file_that_comes_counts(place):
    kept = Kept()
    assert kept.get("x", (place / "absent",), lambda: 1) == 1
    (place / "absent").write_text("")
    assert kept.get("x", (place / "absent",), lambda: 2) == 2


def test_names_are_apart_and_a_failure_is_not_kept(place):
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.get("x", (place,), lambda: 1 // 0)
    assert kept.get("x", (place,), lambda: 1) == 1
    assert kept.get("y", (place,), lambda: 2) == 2
