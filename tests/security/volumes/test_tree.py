"""A volume's files are the guest's: links, pipes and races of its making lead nowhere else."""

import contextlib
import os
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tupper.core.errors import InvalidArgument, TupperError
from tupper.engine.tree import Owner, PathNotFound, Tree, read_chunks

AS_IT_COMES = Owner()


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("the host's")
    (tmp_path / "outside").mkdir()
    return Tree(root)


def read(tree, path):
    fd, size = tree.open_file(path)
    try:
        return b"".join(read_chunks(fd, size))
    finally:
        os.close(fd)


def write(tree, path, data=b"x", owner=AS_IT_COMES, *, force=False):
    with tree.writing(path, owner, force=force) as upload:
        upload.write(data)
        return upload.finish()


def outside(tmp_path):
    return sorted(p.name for p in tmp_path.rglob("*") if "root" not in p.parts)


UP = (
    "../secret",
    "/../secret",
    "a/../../secret",
    "a/../../../../../etc/passwd",
    "..",
    "../outside/x",
)


@pytest.mark.parametrize("path", UP)
def test_dots_end_at_the_root(tree, tmp_path, path):
    (tmp_path / "root" / "a").mkdir()
    for call in (tree.stat, tree.list, tree.open_file, tree.remove):
        with pytest.raises(TupperError) if path != ".." else nothing():
            call(path)
    if path != "..":
        write(tree, path, force=True)
    assert outside(tmp_path) == ["outside", "secret"]
    assert (tmp_path / "secret").read_text() == "the host's"


class nothing:
    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, TupperError)


LINKS = ("/etc", "../outside", "../secret", "/", "..", "../../../../..", "/proc/self/root", "loop")


@pytest.mark.parametrize("target", LINKS)
def test_links_lead_to_places_inside(tree, tmp_path, target):
    root = tmp_path / "root"
    (root / "loop").symlink_to("loop")
    (root / "link").symlink_to(target)
    (root / "own").write_text("guest's")
    for path in ("link", "link/passwd", "link/secret", "link/x/y", "link/../secret"):
        for call in (tree.list, lambda path: read(tree, path)):
            try:
                found = call(path)
            except TupperError:
                continue
            assert b"host" not in (found if isinstance(found, bytes) else b"")
            assert not isinstance(found, list) or {e.path for e in found} <= {
                "/link", "/loop", "/own", "/x", "/etc", "/outside", "/secret", "/passwd"
            }  # fmt: skip
        for owner in (AS_IT_COMES, Owner(mode=0o700)):
            with contextlib.suppress(TupperError):
                write(tree, path, b"guest's", owner, force=True)
    assert (tmp_path / "secret").read_text() == "the host's"
    assert not (tmp_path / "outside").is_symlink()
    assert outside(tmp_path) == ["outside", "secret"]


def test_a_link_itself_is_told_changed_and_removed(tree, tmp_path):
    link = tmp_path / "root" / "link"
    link.symlink_to(tmp_path / "secret")
    before = (tmp_path / "secret").stat()
    entry = tree.stat("link")
    assert (entry.kind, entry.target) == ("symlink", str(tmp_path / "secret"))
    with pytest.raises(InvalidArgument):
        tree.change("link", Owner(mode=0o777))
    if os.geteuid() == 0:
        assert tree.change("link", Owner(uid=7, gid=8)).uid == 7
    after = (tmp_path / "secret").stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    tree.remove("link")
    assert (tmp_path / "secret").exists()


def test_removing_a_directory_follows_no_link(tree, tmp_path):
    (tmp_path / "outside" / "kept").write_text("kept")
    directory = tmp_path / "root" / "d" / "e"
    directory.mkdir(parents=True)
    (directory / "out").symlink_to(tmp_path / "outside")
    tree.remove("d")
    assert (tmp_path / "outside" / "kept").exists()
    for path in ("", "/", ".", "a/.."):
        with pytest.raises((InvalidArgument, PathNotFound)):
            tree.remove(path)
    assert (tmp_path / "root").exists()


def test_only_files_are_opened(tree, tmp_path):
    root = tmp_path / "root"
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        paths = ["pipe", "socket", "."]
        if os.geteuid() == 0:
            os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 3))
            paths.append("device")
        for path in paths:
            with pytest.raises(InvalidArgument):
                tree.open_file(path)
            with pytest.raises(InvalidArgument):
                write(tree, path)
            assert tree.stat(path).kind == ("directory" if path == "." else "unknown")


def test_a_guest_that_swaps_names_all_the_time(tree, tmp_path):
    """A directory that is now a directory and now a link to the host's."""
    root, over = tmp_path / "root", threading.Event()
    (root / "real").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")

    def swap():
        names = ["real", "link"]
        while not over.is_set():
            for name in names:
                with contextlib.suppress(OSError):
                    os.rename(root / name, root / "d")
                with contextlib.suppress(OSError):
                    os.rename(root / "d", root / name)

    guest = threading.Thread(target=swap)
    guest.start()
    try:
        for number in range(100):
            for call in (
                lambda number=number: write(tree, f"d/f{number % 7}", force=number % 2 == 0),
                lambda: tree.list("d", 2),
                lambda: tree.remove("d/f1"),
                lambda: tree.change("d", Owner(mode=0o755)),
                lambda number=number: tree.make_directory(f"d/m{number}", AS_IT_COMES, force=False),
            ):
                try:
                    call()
                except TupperError:
                    continue
    finally:
        over.set()
        guest.join()
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_to_the_inside_is_followed(tree, tmp_path):
    (tmp_path / "root" / "d").mkdir()
    (tmp_path / "root" / "d" / "f").write_text("1")
    (tmp_path / "root" / "link").symlink_to("/d")
    assert read(tree, "link/f") == b"1"
    assert [e.path for e in tree.list("link")] == ["/d/f"]
    assert write(tree, "link/f", b"22").path == "/d/f"
    assert (tmp_path / "root" / "link").is_symlink()


def test_a_broken_upload_leaves_the_old_file_and_nothing_else(tree, tmp_path):
    write(tree, "f", b"old", Owner(mode=0o640))
    with tree.writing("f", AS_IT_COMES, force=False) as upload:
        upload.write(b"new")
    assert read(tree, "f") == b"old"
    assert write(tree, "f", b"newer").mode == 0o640
    assert read(tree, "f") == b"newer"
    assert [e.path for e in tree.list("/")] == ["/f"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.booleans())
def test_any_path_is_an_answer_or_a_typed_error(tmp_path_factory, path, force):
    base = tmp_path_factory.mktemp("tree")
    (base / "root").mkdir()
    tree = Tree(base / "root")
    for call in (
        lambda: write(tree, path, force=force),
        lambda: tree.stat(path),
        lambda: tree.list(path, 3),
        lambda: tree.make_directory(path, AS_IT_COMES, force=force),
        lambda: tree.remove(path),
    ):
        said = ""
        try:
            call()
        except TupperError as error:
            said = str(error)
        assert str(base) not in said
    assert [p.name for p in base.iterdir()] == ["root"]


def test_owners_and_modes(tree):
    for wrong in (Owner(uid=-1), Owner(gid=2**40), Owner(mode=0o10000)):
        with pytest.raises(InvalidArgument):
            tree.make_directory("d", wrong, force=False)
    entry = tree.make_directory("a/b", Owner(mode=0o711), force=True)
    assert (entry.path, entry.mode, tree.stat("a").mode) == ("/a/b", 0o711, 0o755)
    with pytest.raises(PathNotFound):
        tree.make_directory("c/d", AS_IT_COMES, force=False)
    if os.geteuid() == 0:
        assert write(tree, "a/f", owner=Owner(uid=5, gid=6)).uid == 5
        assert tree.change("a/f", Owner(uid=7)).gid == 6
