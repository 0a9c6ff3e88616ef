import json

import pytest

from tupper.backends.gvisor.bundle import Layout, adapt_mounts
from tupper.backends.gvisor.prepare import copy_tree
from tupper.backends.gvisor.saving import leave_release


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "machine")
    layout.shared.mkdir(parents=True)
    return layout


def test_release_is_a_file_beside_the_socket(layout):
    leave_release(layout)
    leave_release(layout)  # the agent has not looked yet
    assert layout.release.is_file()


def test_nothing_that_a_guest_puts_in_its_place_is_followed(layout, tmp_path):
    outside = tmp_path / "outside"
    layout.release.symlink_to(outside)
    leave_release(layout)
    assert not outside.exists()
    outside.write_text("precious")
    leave_release(layout)
    assert outside.read_text() == "precious"
    layout.release.unlink()
    layout.release.mkdir()
    leave_release(layout)
    assert list(layout.release.iterdir()) == []


def test_a_link_in_place_of_the_directory_is_not_followed(layout, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    layout.shared.rmdir()
    layout.shared.symlink_to(elsewhere)
    leave_release(layout)
    assert list(elsewhere.iterdir()) == []


def mounts(**sources):
    return json.dumps(
        {"x": 1, "mounts": [{"destination": d, "source": s} for d, s in sources.items()]}
    )


def test_the_saved_mounts_count_with_our_sources():
    ours = mounts(a="new a", b="new b", more="new")
    adapted = json.loads(adapt_mounts(ours, mounts(b="old b", a="old a")))
    assert adapted["x"] == 1
    assert [m["source"] for m in adapted["mounts"]] == ["new b", "new a"]
    with pytest.raises(ValueError, match="gone"):
        adapt_mounts(ours, mounts(gone="old"))


def test_a_copied_tree_has_the_same_times_and_modes(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("x")
    (source / "d" / "f").chmod(0o640)
    (source / "l").symlink_to("/nowhere")
    (source / "d").chmod(0o1777)
    target.mkdir()
    copy_tree(source, target)

    def look(top):
        return {
            path.relative_to(top): (status.st_mode, status.st_mtime_ns, status.st_uid)
            for path in [top, *top.rglob("*")]
            if not path.is_symlink()
            for status in [path.lstat()]
        }

    assert look(source) == look(target)
    assert (target / "l").readlink() == (source / "l").readlink()
