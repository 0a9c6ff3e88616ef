"""Unpacking what a hostile sandbox sends: every way out is tried."""

import contextlib
import io
import os
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.errors import GuestMisbehaved
from tupper.sdk._shared.tar import Entry, Kind, TarParser
from tupper.sdk._shared.tree import TreeReader
from tupper.sdk._shared.untar import TreeWriter


def archive(*entries, pad=True):
    """Entries are (name, content or None) or a TarInfo, or a pair of TarInfo and content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info, content = entry if isinstance(entry, tuple) else (entry, None)
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
                if content is None:
                    info.type = tarfile.DIRTYPE
            info.size = len(content or b"")
            tar.addfile(info, io.BytesIO(content or b""))
    data = out.getvalue()
    return data if pad else data.rstrip(b"\0")


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def unpack(target, data, *, step=1000, **limits):
    writer = TreeWriter(target, **limits)
    try:
        for at in range(0, len(data), step):
            writer.feed(data[at : at + step])
        writer.finish()
    except BaseException:
        writer.undo()
        raise
    finally:
        writer.close()


@pytest.fixture
def place(tmp_path):
    """A directory to unpack into, beside something that must stay as it is."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")
    yield tmp_path / "out"
    assert os.listdir(victim) == ["file"]
    assert (victim / "file").read_text() == "untouched"
    assert sorted(set(os.listdir(tmp_path)) - {"out"}) == ["victim"]


@pytest.mark.parametrize("step", [1, 7, 512, 100000])
def test_an_honest_tree(place, step):
    script = tarfile.TarInfo("a/run.sh")
    script.mode, script.mtime = 0o755, 1234567
    long = "d" * 120 + "/" + "f" * 200
    unpack(
        place,
        archive(("a", None), (script, b"#!/bin/sh\n"), ("b/c/d", b"x" * 3000), ("empty", b""),
                link("l", "a/run.sh"), ("é\n*", b"odd"), (long, b"long")),
        step=step,
    )  # fmt: skip
    assert (place / "a/run.sh").stat().st_mode & 0o777 == 0o755
    assert (place / "a/run.sh").stat().st_mtime == 1234567
    assert (place / "b/c/d").read_bytes() == b"x" * 3000
    assert os.readlink(place / "l") == "a/run.sh"
    assert (place / "é\n*").read_text() == "odd"
    assert (place / long).read_text() == "long"
    assert (place / "empty").read_bytes() == b""
    assert sorted(os.listdir(place)) == sorted(["a", "b", "empty", "l", "é\n*", "d" * 120])


@pytest.mark.parametrize(
    "name", ["../victim/file", "/etc/tupper-test", "a/../../victim/file", "..", "a/..", "//x"]
)
def test_tb047_names_that_climb(place, name):
    with pytest.raises(GuestMisbehaved):
        unpack(place, archive(("good", b"1"), (name, b"evil")))
    assert not place.exists()


@pytest.mark.parametrize("target", ["../victim", "/tmp", "."])
def test_tb047_through_a_link_of_the_archive(place, target):
    with pytest.raises(GuestMisbehaved, match="link"):
        unpack(place, archive(link("l", target), ("l/file", b"evil")))
    assert not place.exists()


def test_tb047_through_a_link_that_was_there(place):
    place.mkdir()
    (place / "l").symlink_to("../victim")
    with pytest.raises(GuestMisbehaved, match="link"):
        unpack(place, archive(("l/file", b"evil")))
    assert os.listdir(place) == ["l"]


def test_tb047_onto_a_link(place):
    """A file replaces the link of the same name and is not written through it."""
    place.mkdir()
    (place / "l").symlink_to("../victim/file")
    unpack(place, archive(link("m", "../victim/file"), ("l", b"new"), ("m", b"new")))
    for name in ("l", "m"):
        assert not (place / name).is_symlink()
        assert (place / name).read_bytes() == b"new"


def test_tb047_a_directory_onto_a_link(place):
    with pytest.raises(GuestMisbehaved):
        unpack(place, archive(link("l", "../victim"), ("l", None)))


@pytest.mark.parametrize("target", ["../victim/file", "/etc/passwd", "l/file", "not-there"])
def test_tb047_hard_links_out(place, target):
    with pytest.raises(GuestMisbehaved):
        unpack(place, archive(link("l", "../victim"), link("h", target, tarfile.LNKTYPE)))


def test_hard_links_within(place):
    unpack(place, archive(("a/f", b"same"), link("b/g", "a/f", tarfile.LNKTYPE)))
    assert (place / "a/f").stat().st_ino == (place / "b/g").stat().st_ino


def test_tb047_a_hard_link_to_a_link(place):
    with pytest.raises(GuestMisbehaved):
        unpack(
            place,
            archive(("f", b"1"), link("f", "../victim/file"), link("h", "f", tarfile.LNKTYPE)),
        )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"])
def test_tb047_devices_are_left_out(place, kind):
    info = tarfile.TarInfo("dev")
    info.type, info.devmajor, info.devminor = kind, 1, 3
    unpack(place, archive(info, ("f", b"1")))
    assert os.listdir(place) == ["f"]


def test_tb047_no_set_id_bits(place):
    info = tarfile.TarInfo("su")
    info.mode = 0o6755
    directory = tarfile.TarInfo("d")
    directory.type, directory.mode = tarfile.DIRTYPE, 0o7777
    unpack(place, archive((info, b"x"), directory))
    assert (place / "su").stat().st_mode & 0o7777 == 0o755
    assert (place / "d").stat().st_mode & 0o7777 == 0o777


def test_tb047_limits(place):
    with pytest.raises(GuestMisbehaved, match="more content"):
        unpack(place, archive(("f", b"x" * 5000)), max_bytes=4999)
    with pytest.raises(GuestMisbehaved, match="more entries"):
        unpack(place, archive(*((f"f{n}", b"") for n in range(11))), max_entries=10)
    assert not place.exists()


def test_what_was_there_stays_after_a_failure(place):
    (place / "mine").mkdir(parents=True)
    (place / "mine" / "f").write_text("mine")
    with pytest.raises(GuestMisbehaved):
        unpack(place, archive(("mine/new", b"1"), ("other/x", b"2"), ("../bad", b"3")))
    assert os.listdir(place) == ["mine"]
    assert os.listdir(place / "mine") == ["f"]


def test_a_cut_stream_leaves_nothing(place):
    data = archive(("a/f", b"x" * 5000), ("b", b"y" * 5000))
    for end in (100, 700, 3000, 6500, 8000):
        with pytest.raises(GuestMisbehaved):
            unpack(place, data[:end])
        assert not place.exists()


def test_a_file_never_replaces_a_directory(place):
    with pytest.raises(GuestMisbehaved, match="directory"):
        unpack(place, archive(("d/f", b"1"), ("d", b"evil")))


def test_damaged_headers():
    good = archive(("f", b"x"))
    for damage in (b"\xff" * 512, b"x" * 512, good[:124] + b"99999999999\0" + good[136:512]):
        with pytest.raises(GuestMisbehaved):
            TarParser().feed(damage)


def test_a_huge_extended_header_is_refused():
    info = tarfile.TarInfo("pax")
    info.type, info.size = b"x", 2**30
    with pytest.raises(GuestMisbehaved, match="extended header"):
        TarParser().feed(info.tobuf())


@given(st.binary(max_size=3000))
def test_noise_never_crashes(data):
    parser = TarParser()
    try:
        parser.feed(data)
        parser.close()
    except GuestMisbehaved:
        pass


@given(st.binary(max_size=900), st.integers(0, 2000), st.integers(1, 255))
def test_flipped_bytes_never_crash(content, at, flip):
    data = bytearray(archive(("dir/name", content), link("l", "x")))
    data[at % len(data)] ^= flip
    parser = TarParser()
    with contextlib.suppress(GuestMisbehaved):
        parser.feed(bytes(data))


def test_sizes_beyond_octal():
    info = tarfile.TarInfo("big")
    info.size = 9 * 2**30
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        found = TarParser().feed(info.tobuf(form))
        assert found == [Entry("big", Kind.FILE, 9 * 2**30, 0o644, 0, "")]


def test_up_and_down_again(tmp_path, place):
    source = tmp_path / "out-source"
    (source / "a" / "deep").mkdir(parents=True)
    (source / "a" / "deep" / "f").write_bytes(os.urandom(3_000_000))
    (source / "x.pyc").write_text("no")
    (source / "run").write_text("#!")
    (source / "run").chmod(0o750)
    (source / "l").symlink_to("/nowhere")
    os.mkfifo(source / "fifo")
    name = os.fsdecode(b"raw\xff")
    (source / name).write_text("raw")
    tree = TreeReader(source, ["*.pyc"])
    writer = TreeWriter(place)
    while piece := tree.read():
        writer.feed(piece)
    writer.finish()
    writer.close()
    assert (place / "a/deep/f").read_bytes() == (source / "a/deep/f").read_bytes()
    assert sorted(os.listdir(place)) == sorted(["a", "run", "l", name])
    assert (place / "run").stat().st_mode & 0o777 == 0o750
    assert os.readlink(place / "l") == "/nowhere"
    import shutil

    shutil.rmtree(source)
