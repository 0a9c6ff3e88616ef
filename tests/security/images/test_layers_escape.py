"""Layers that try to reach the host. Each runs against a real directory with victims beside it."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from oci_writer import Item, directory, hard_link, make_tar, symlink
from tupper.core.errors import ImageRejected
from tupper.images.layers import LayerWriter, Limits
from tupper.images.tarstream import TarStream


@pytest.fixture
def host(tmp_path):
    """A pretended host: the tree is in ``store/root``, victims are around it."""
    (tmp_path / "store" / "root").mkdir(parents=True)
    (tmp_path / "store" / "neighbour").write_text("neighbour")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0")
    before = snapshot(tmp_path)
    yield tmp_path
    assert snapshot(tmp_path) == before, "something outside the tree changed"


def snapshot(base):
    out = {}
    for where, directories, files in os.walk(base):
        if where == str(base / "store"):
            directories.remove("root")
        for name in [*files, *directories]:
            status = os.lstat(os.path.join(where, name))
            content = Path(where, name).read_text() if name in files else ""
            out[os.path.join(where, name)] = (
                status.st_mode,
                status.st_uid,
                status.st_nlink,
                content,
            )
    return out


def apply(host, *layers):
    writer = LayerWriter(host / "store" / "root", limits=Limits(min_free_bytes=0))
    try:
        for layer in layers:
            items = [replace(item, uid=os.geteuid(), gid=os.getegid()) for item in layer]
            writer.apply(io.BytesIO(make_tar(items)))
    finally:
        writer.close()


@pytest.mark.parametrize(
    "item",
    [
        Item("../neighbour", b"owned"),
        Item("a/../../neighbour", b"owned"),
        Item("../../etc/passwd", b"owned"),
        directory("..", mode=0o777),
        symlink("../link", "/"),
        hard_link("../hard", "x"),
        Item("../.wh.neighbour"),
        Item("..", b"owned"),
        Item(".wh..", b""),
        Item(".wh...", b""),
        Item("a/.wh..", b""),
        Item("a/.wh...", b""),
        Item(".wh.", b""),
        Item(".wh.x/y", b""),
        Item("../.wh..wh..opq"),
    ],
    ids=lambda item: item.name,
)
def test_names_that_go_up_are_refused(host, item):
    with pytest.raises(ImageRejected):
        apply(host, [Item("x", b"x"), item])


def test_absolute_names_stay_inside(host):
    apply(host, [Item("/etc/passwd", b"inside"), Item(f"{host}/etc/passwd", b"inside too")])
    assert (host / "store/root/etc/passwd").read_bytes() == b"inside"


@pytest.mark.parametrize(
    "target", ["/", "../../..", "..", "HOST", "HOST/etc", "../../etc", "/etc/../.."]
)
def test_writes_through_planted_links_stay_inside(host, target):
    target = target.replace("HOST", str(host))
    apply(
        host,
        [symlink("l", target)],
        [
            Item("l/etc/passwd", b"owned"), Item("l/passwd", b"owned"), Item("l/neighbour", b"owned"),
            directory("l/etc", mode=0o777), Item("l/.wh.neighbour"), Item("l/etc/.wh.passwd"),
            Item("l/store/.wh.neighbour"), Item("l/etc/.wh..wh..opq"), Item("l/.wh..wh..opq"),
        ],
    )  # fmt: skip


def test_a_link_planted_in_the_same_layer_is_no_better(host):
    apply(host, [directory("d"), symlink("d/up", "../../.."), Item("d/up/etc/passwd", b"owned")])
    apply(host, [symlink("f", str(host / "etc/passwd")), Item("f", b"owned")])
    assert (host / "store/root/f").read_bytes() == b"owned"


def test_chains_and_loops_of_links_end(host):
    with pytest.raises(ImageRejected, match="too many levels"):
        apply(host, [symlink("a", "b"), symlink("b", "a"), Item("a/x", b"")])
    links = [symlink(f"l{n}", f"l{n + 1}") for n in range(60)]
    with pytest.raises(ImageRejected, match="too many levels"):
        apply(host, [*links, Item("l0/x")])


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../etc/passwd", "../../etc/passwd", "../neighbour", "HOST/etc/passwd"],
)
def test_hard_links_to_the_host_are_refused(host, target):
    with pytest.raises(ImageRejected):
        apply(host, [hard_link("stolen", target.replace("HOST", str(host)))])
    assert not (host / "store/root/stolen").exists()


def test_a_hard_link_to_a_planted_link_gives_the_link_only(host):
    """And a later file of the name must not be written through it."""
    apply(
        host, [symlink("s", str(host / "etc/passwd")), hard_link("h", "s")], [Item("h", b"owned")]
    )


def test_a_hard_link_through_a_planted_directory_stays_inside(host):
    with pytest.raises(ImageRejected, match="not in the image"):
        apply(host, [symlink("d", str(host)), hard_link("h", "d/etc/passwd")])


def test_a_hard_link_to_a_directory_is_refused(host):
    with pytest.raises(ImageRejected):
        apply(host, [directory("d"), hard_link("h", "d")])


def test_metadata_is_not_applied_through_links(host):
    apply(
        host,
        [symlink("d", str(host / "etc"))],
        [directory("d", mode=0o777)],
        [symlink("f", str(host / "etc/passwd"))],
        [hard_link("g", "f"), Item("g", b"", mode=0o777)],
    )


def test_the_root_cannot_be_replaced(host):
    for item in (symlink(".", "/"), Item("./", b"x", kind=tarfile.REGTYPE), hard_link(".", "x")):
        with pytest.raises(ImageRejected):
            apply(host, [Item("x"), replace(item, name="." if item.name == "./" else item.name)])


@pytest.mark.parametrize(
    "owner",
    [{"uid": 2**32 - 1}, {"gid": 2**32 - 1}, {"uid": 2**40}],
    ids=["uid -1", "gid -1", "uid 2^40"],
)
def test_owners_that_mean_something_else_to_chown_are_refused(host, owner):
    writer = LayerWriter(host / "store" / "root", limits=Limits(min_free_bytes=0))
    try:
        with pytest.raises(ImageRejected, match="impossible owner"):
            writer.apply(io.BytesIO(make_tar([Item("f", b"", **owner)])))
    finally:
        writer.close()


def test_a_header_that_asks_for_memory_is_refused():
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    with pytest.raises(ImageRejected, match="extension header"):
        list(TarStream(io.BytesIO(info.tobuf(tarfile.GNU_FORMAT))))


def test_negative_and_damaged_numbers_are_refused():
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))

    def with_size(raw):
        block[124:136] = raw
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        return list(TarStream(io.BytesIO(bytes(block) + bytes(1024))))

    for raw in (b"\xff" * 12, b"99999999999\0", b"-0000000001\0", b"0x000000001\0"):
        with pytest.raises(ImageRejected):
            with_size(raw)
    with pytest.raises(ImageRejected, match="cut short"):
        with_size(b"\x80" + struct.pack(">3xQ", 2**62))


@pytest.mark.parametrize(
    "record",
    [b"99999 path=x\n", b"5 a\n", b"x path=a\n", b"0 a=b\n", b"12 size=-5xx\n", b"11 size=-1\n"],
)
def test_damaged_extension_records_are_refused(record):
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    data = info.tobuf() + record.ljust(512, b"\0") + tarfile.TarInfo("x").tobuf()
    with pytest.raises(ImageRejected):
        list(TarStream(io.BytesIO(data)))


def test_a_name_with_a_nul_is_refused(host):
    writer = LayerWriter(host / "store" / "root", limits=Limits(min_free_bytes=0))
    info = tarfile.TarInfo("x")
    info.pax_headers = {"path": "a\0b"}
    try:
        with pytest.raises(ImageRejected, match="NUL"):
            writer.apply(io.BytesIO(info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)))
    finally:
        writer.close()


def test_what_is_no_tar_at_all_is_refused():
    with pytest.raises(ImageRejected, match="tar header"):
        list(TarStream(io.BytesIO(os.urandom(4096))))
