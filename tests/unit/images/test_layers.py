"""Applying layers: what they say is on disk, and what lower layers said is gone."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oci_writer import Item, directory, hard_link, make_tar, symlink
from tupper.core.errors import ImageRejected, OutOfDisk
from tupper.images.layers import LayerWriter, Limits

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")


def own(items):
    """An ordinary user can make only files of its own."""
    from dataclasses import replace

    return [replace(item, uid=os.geteuid(), gid=os.getegid()) for item in items]


def apply(root, *layers, raw=False, **keys):
    root.mkdir(exist_ok=True)
    writer = LayerWriter(root, limits=Limits(min_free_bytes=0, **keys))
    try:
        for layer in layers:
            data = layer if isinstance(layer, bytes) else make_tar(layer if raw else own(layer))
            writer.apply(io.BytesIO(data))
    finally:
        writer.close()
    return writer.summary


def names(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


L1 = [
    directory("etc"), Item("etc/a", b"one"), directory("d"), Item("d/x"), Item("d/y"),
    directory("e"), Item("e/f"),
]  # fmt: skip
L2 = [
    Item("etc/.wh.a"), Item("d/.wh..wh..opq"), Item("d/z"), Item(".wh.e"), directory("e"), Item("e/g"),
]  # fmt: skip
L3 = [Item("etc/a", b"three")]


@pytest.mark.parametrize("order", ["marker first", "marker last"])
def test_tb049_whiteouts_hide_lower_layers_and_never_their_own(tmp_path, order):
    second = L2
    if order == "marker last":
        second = [
            directory("e"),
            Item("e/g"),
            Item("d/z"),
            Item(".wh.e"),
            Item("d/.wh..wh..opq"),
            Item("etc/.wh.a"),
        ]
    apply(tmp_path / "r", L1, second, L3)
    assert names(tmp_path / "r") == ["d", "d/z", "e", "e/g", "etc", "etc/a"]
    assert (tmp_path / "r/etc/a").read_bytes() == b"three"


def test_tb049_whiteout_of_nothing_is_no_error(tmp_path):
    apply(tmp_path / "r", [Item("a/.wh.b"), Item(".wh.c"), Item("n/o/.wh..wh..opq")])
    assert names(tmp_path / "r") == []


def test_tb049_opaque_root_hides_all(tmp_path):
    apply(tmp_path / "r", L1, [Item(".wh..wh..opq"), Item("new")])
    assert names(tmp_path / "r") == ["new"]


def test_tb049_whiteout_of_a_link_removes_the_link_and_not_its_target(tmp_path):
    apply(tmp_path / "r", [directory("t"), Item("t/keep"), symlink("l", "t")], [Item(".wh.l")])
    assert names(tmp_path / "r") == ["t", "t/keep"]


def test_types_change_between_layers(tmp_path):
    root = tmp_path / "r"
    apply(
        root,
        [directory("a"), Item("a/x"), Item("b", b"file"), symlink("c", "b"), symlink("l", "a")],
        [Item("a", b"now a file"), directory("b"), Item("b/y"), directory("c"), symlink("l", "b")],
        [symlink("a", "b"), Item("c/z"), Item("l", b"plain")],
    )
    assert os.readlink(root / "a") == "b"
    assert (root / "b").is_dir()
    assert (root / "b/y").is_file()
    assert not (root / "c").is_symlink()
    assert (root / "c/z").is_file()
    assert (root / "l").read_bytes() == b"plain"


def test_a_file_in_the_way_of_a_directory_gives_way(tmp_path):
    apply(tmp_path / "r", [Item("e", b"file")], [Item("e/g", b"below")])
    assert (tmp_path / "r/e/g").read_bytes() == b"below"


def test_names_go_through_links_inside_the_image(tmp_path):
    root = tmp_path / "r"
    apply(
        root,
        [directory("usr/lib"), symlink("lib", "/usr/lib")],
        [Item("lib/x", b"1"), Item("lib/.wh.y")],
    )
    assert (root / "usr/lib/x").read_bytes() == b"1"
    assert (root / "lib").is_symlink()


def test_replacing_a_file_leaves_its_other_links_alone(tmp_path):
    root = tmp_path / "r"
    apply(root, [Item("a", b"old"), hard_link("b", "a")], [Item("a", b"new")])
    assert (root / "b").read_bytes() == b"old"
    assert (root / "a").read_bytes() == b"new"


def test_hard_links_share_their_file(tmp_path):
    root = tmp_path / "r"
    apply(
        root, [Item("a", b"x")], [hard_link("d/b", "/a"), symlink("s", "a"), hard_link("s2", "s")]
    )
    assert (root / "a").stat().st_ino == (root / "d/b").stat().st_ino
    assert os.readlink(root / "s2") == "a"


def test_modes_and_times_are_kept(tmp_path):
    root = tmp_path / "r"
    apply(root, [directory("d", mode=0o1777, mtime=5), Item("d/s", b"x", mode=0o4755, mtime=7.25)])
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o1777
    assert stat.S_IMODE((root / "d/s").stat().st_mode) == 0o4755
    assert (root / "d").stat().st_mtime_ns == 5 * 10**9
    assert (root / "d/s").stat().st_mtime_ns == 7_250_000_000


@is_root
def test_tb109_owners_links_and_setuid_survive_as_root(tmp_path):
    root = tmp_path / "r"
    items = [Item("f", b"x", mode=0o6755, uid=3_000_000, gid=12), directory("d", uid=4_000_000_000)]
    apply(root, items, raw=True)
    assert ((root / "f").stat().st_uid, (root / "f").stat().st_gid) == (3_000_000, 12)
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o6755
    assert (root / "d").stat().st_uid == 4_000_000_000


@is_root
def test_capabilities_and_user_attributes_survive_and_overlay_marks_do_not(tmp_path):
    root = tmp_path / "r"
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    pax = {
        "SCHILY.xattr.security.capability": capability.decode("latin-1"),
        "SCHILY.xattr.user.note": "hello",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
        "SCHILY.xattr.user.overlay.opaque": "y",
    }
    # tarfile encodes values as UTF-8; these bytes are all below 128.
    summary = apply(root, [Item("ping", b"x", pax=pax, uid=5)], raw=True)
    assert os.getxattr(root / "ping", "security.capability") == capability
    kept = set(os.listxattr(root / "ping"))
    assert "trusted.overlay.opaque" not in kept
    assert "user.overlay.opaque" not in kept
    assert summary.skipped["extended attribute"] == 2


def test_tb109_long_and_foreign_names(tmp_path):
    root = tmp_path / "r"
    long = "/".join(["n" * 100] * 3)
    deep = "/".join(["d"] * 50) + "/leaf"
    very_long = "/".join(["x" * 250] * 15)
    foreign = "grüße/日本語/\N{PILE OF POO}"
    apply(root, [Item(long, b"1"), Item(deep, b"2"), Item(very_long, b"4"), Item(foreign, b"3")])
    assert (root / long).read_bytes() == b"1"
    assert (root / deep).read_bytes() == b"2"
    assert (root / foreign).read_bytes() == b"3"
    fd = os.open(root, os.O_RDONLY)
    for part in very_long.split("/")[:-1]:
        inner = os.open(part, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    assert os.listdir(fd) == ["x" * 250]
    os.close(fd)


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tb109_long_links_in_both_formats(tmp_path, style):
    target = "t" * 90 + "/" + "u" * 90
    data = make_tar(
        own([Item(target, b"x"), hard_link("h", target), symlink("s", target)]), style=style
    )
    apply(tmp_path / "r", data)
    assert (tmp_path / "r/h").read_bytes() == b"x"
    assert os.readlink(tmp_path / "r/s") == target


def test_tb109_a_path_longer_than_path_max_is_refused(tmp_path):
    with pytest.raises(ImageRejected, match="4100 bytes"):
        apply(tmp_path / "r", [Item("a" * 4100)])
    with pytest.raises(ImageRejected, match="file name of 256"):
        apply(tmp_path / "r", [Item("a" * 256)])


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tb109_a_size_of_9_gib_is_read_right(tmp_path, style):
    info = tarfile.TarInfo("huge")
    info.size = 9 * 2**30
    info.uid = info.gid = os.geteuid()
    header = info.tobuf(style)
    with pytest.raises(ImageRejected, match=str(9 * 2**30)):
        apply(tmp_path / "r", header, size_bytes=2**30)
    with pytest.raises(ImageRejected, match="cut short"):
        apply(tmp_path / "q", header + b"x" * 1000)


def test_a_bomb_of_zeros_takes_no_disk(tmp_path):
    summary = apply(tmp_path / "r", [Item("zeros", bytes(64 * 2**20)), Item("end", b"x")])
    status = (tmp_path / "r/zeros").stat()
    assert status.st_size == 64 * 2**20
    assert status.st_blocks * 512 < 2**20
    assert summary.disk_bytes < 2**20


def test_a_bomb_of_entries_is_refused(tmp_path):
    with pytest.raises(ImageRejected, match="more than 100 entries"):
        apply(tmp_path / "r", [Item(f"f{n}") for n in range(101)], entries=100)


def test_a_full_disk_is_told_from_a_bad_image(tmp_path):
    (tmp_path / "r").mkdir()
    writer = LayerWriter(tmp_path / "r", limits=Limits(min_free_bytes=2**62))
    try:
        with pytest.raises(OutOfDisk, match="must stay free"):
            writer.apply(io.BytesIO(make_tar(own([Item("f", b"x")]))))
    finally:
        writer.close()


def test_devices_are_left_out_and_counted_for_an_ordinary_user(tmp_path):
    node = Item("null", kind=tarfile.CHRTYPE, device=(1, 3))
    summary = apply(tmp_path / "r", [node, Item("pipe", kind=tarfile.FIFOTYPE)])
    assert summary.skipped == {"device node": 1}
    assert stat.S_ISFIFO((tmp_path / "r/pipe").stat().st_mode)


@is_root
def test_devices_are_made_for_root_but_never_overlayfs_whiteouts(tmp_path):
    (tmp_path / "r").mkdir()
    writer = LayerWriter(tmp_path / "r", devices=True)
    items = [
        Item("null", kind=tarfile.CHRTYPE, device=(1, 3), mode=0o666),
        Item("wh", kind=tarfile.CHRTYPE, device=(0, 0)),
    ]
    try:
        writer.apply(io.BytesIO(make_tar(items)))
    finally:
        writer.close()
    assert (tmp_path / "r/null").stat().st_rdev == os.makedev(1, 3)
    assert stat.S_IMODE((tmp_path / "r/null").stat().st_mode) == 0o666
    assert not (tmp_path / "r/wh").exists()


def test_sparse_files_of_gnu_tar(tmp_path):
    """PAX 1.0: the map stands in front of the data."""
    content = b"2\n4096\n3\n1048576\n2\n".ljust(512, b"\0") + b"abcde"
    pax = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "real",
        "GNU.sparse.realsize": "2000000",
    }  # fmt: skip
    apply(tmp_path / "r", [Item("GNUSparseFile.0/real", content, pax=pax)])
    # The name in the map wins, as in GNU tar.
    data = (tmp_path / "r/real").read_bytes()
    assert len(data) == 2_000_000
    assert data[4096:4099] == b"abc"
    assert data[1048576:1048578] == b"de"
    assert data.count(0) == len(data) - 5


NAMES = st.sampled_from(
    ["a", "b", "a/b", "a/b/c", "c", "c/d", "./a", "/b", ".wh.a", "a/.wh.b", "c/.wh..wh..opq"]
)
ENTRIES = st.one_of(
    st.builds(Item, NAMES, st.binary(max_size=4)),
    st.builds(directory, NAMES),
    st.builds(symlink, NAMES, st.sampled_from(["a", "/c", "../../..", "/", "b/c", "../outside"])),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(layers=st.lists(st.lists(ENTRIES, max_size=8), min_size=1, max_size=3))
def test_whatever_layers_do_nothing_appears_outside(tmp_path_factory, layers):
    base = tmp_path_factory.mktemp("fuzz")
    outside = base / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"untouched")
    # An impossible image may be refused; it may not reach out.
    with contextlib.suppress(ImageRejected):
        apply(base / "r", *layers)
    assert sorted(os.listdir(base)) == ["outside", "r"]
    assert os.listdir(outside) == ["victim"]
    for where, _, files in os.walk(base / "r"):
        assert not any(name.startswith(".wh.") for name in files), where
