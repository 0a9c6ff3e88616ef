"""Places that others can guess must be ours."""

import os

import pytest

from tupper.core.errors import PermissionDenied
from tupper.core.paths import find_paths, make_private


@pytest.fixture
def user(monkeypatch, tmp_path):
    """An ordinary user, whatever runs the tests."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid or 1)
    return os.geteuid()


def find(tmp_path):
    return find_paths({"TUPPER_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)})


def test_runtime_directory_is_below_one_of_the_user(tmp_path, user):
    assert find(tmp_path).runtime.parent == tmp_path / f"tupper-{user}"


@pytest.mark.parametrize("kind", ["link", "file", "directory"])
def test_runtime_directory_that_somebody_else_made_first(tmp_path, user, monkeypatch, kind):
    place = tmp_path / f"tupper-{user}"
    if kind == "link":
        (tmp_path / "theirs").mkdir()
        place.symlink_to("theirs")
    elif kind == "file":
        place.touch()
    else:
        place.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: user)
        if place.stat().st_uid == user:
            pytest.skip("needs another user's directory: run as root")
    with pytest.raises(PermissionDenied, match="not a directory of this user"):
        find(tmp_path)


def test_private_directory_and_its_new_parents(tmp_path):
    before = os.umask(0)
    try:
        made = make_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == 0o700
    assert made.parent.stat().st_mode & 0o777 == 0o700
