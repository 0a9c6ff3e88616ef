"""The files of a build context."""

from __future__ import annotations

import pytest

from tupper.core.errors import TemplateError
from tupper.images.context import hash_files, list_context, select_files


def test_listing_obeys_the_ignore_file_and_follows_no_link(tmp_path):
    context = tmp_path / "ctx"
    (context / "src/deep").mkdir(parents=True)
    (context / "src/a.py").write_text("a")
    (context / "src/a.pyc").write_text("x")
    (context / "src/deep/keep.pyc").write_text("k")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("s")
    (context / "out").symlink_to(tmp_path / "secret")
    (context / ".dockerignore").write_text("**/*.pyc\n!src/deep/keep.pyc\n.dockerignore\n")
    found = list_context(context)
    assert found == ["out", "src", "src/a.py", "src/deep", "src/deep/keep.pyc"]
    assert select_files(context, found, "src/*.py") == ["src/a.py"]
    with pytest.raises(TemplateError, match="nothing"):
        select_files(context, found, "nothing")


def test_the_hash_sees_contents_names_modes_and_targets_but_no_times(tmp_path):
    file = tmp_path / "f"
    file.write_text("1")
    (tmp_path / "l").symlink_to("a")
    first = hash_files(tmp_path, ["f", "l"])
    file.touch()
    assert hash_files(tmp_path, ["f", "l"]) == first
    seen = {first}
    file.chmod(0o755)
    seen.add(hash_files(tmp_path, ["f", "l"]))
    file.write_text("2")
    seen.add(hash_files(tmp_path, ["f", "l"]))
    (tmp_path / "l").unlink()
    (tmp_path / "l").symlink_to("b")
    seen.add(hash_files(tmp_path, ["f", "l"]))
    assert len(seen) == 4
