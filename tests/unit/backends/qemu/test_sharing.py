"""What an ordinary user's QEMU is started with."""

import json
import os

import pytest

from tupper.backends.qemu.sharing import share
from tupper.core.backend import Mount
from tupper.core.errors import NotFound


@pytest.mark.parametrize(("gid", "word"), [(0, "--clear-groups"), (7, "--keep-groups")])
def test_groups_are_kept_where_one_is_needed_and_the_filter_knows(tmp_path, gid, word):
    shared = share([Mount(tmp_path, "/x", read_only=True)], tmp_path / "base", None, gid=gid)
    os.close(shared.place)
    assert [arg for arg in shared.prefix if arg.endswith("-groups")] == [word]
    job = next(json.loads(arg) for arg in shared.prefix if arg.startswith("{"))
    assert job["has_groups"] is bool(gid)
    assert job["mounts"] == [[str(tmp_path), True]]


def test_a_directory_that_is_gone_is_told_before_anything_starts(tmp_path):
    with pytest.raises(NotFound, match="/x"):
        share([Mount(tmp_path / "gone", "/x")], tmp_path / "base", None)
