"""Archives that a stranger uploads for COPY, and layers that a guest wrote: neither leads out."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from tupper.core.errors import TemplateError
from tupper.engine.archives import Copying, copy_archive
from tupper.engine.flat import _merge_layer


class Guest:
    """Stands for the sandbox: keeps what the agent would be asked to unpack."""

    def __init__(self, *directories):
        self.directories = directories
        self.members = {}
        self.directory = ""

    async def kind(self, path):
        return "dir" if path in self.directories else ""

    async def upload(self, directory, archive, *, user):
        raw = b"".join([chunk async for chunk in archive])
        self.directory = directory
        with tarfile.open(fileobj=io.BytesIO(raw)) as opened:
            for member in opened:
                data = opened.extractfile(member) if member.isreg() else None
                self.members[member.name] = (
                    data.read().decode() if data else member.linkname or member.type.decode(),
                    member.mode,
                )


def archive(tmp_path, *members, packed=True):
    """A tar of (name, kind or content, target of a link)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content, *target in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o640
            if isinstance(content, bytes):
                info.type, info.linkname = content, target[0] if target else ""
                made.addfile(info)
            else:
                info.size = len(content)
                made.addfile(info, io.BytesIO(content.encode()))
    path = tmp_path / "archive"
    path.write_bytes(gzip.compress(buffer.getvalue()) if packed else buffer.getvalue())
    return path


async def copied(path, source, target, *directories, mode="", owner="user"):
    guest = Guest(*directories)
    await copy_archive(guest, path, Copying(source, target, owner, mode))
    return guest


TREE = (
    ("site", tarfile.DIRTYPE),
    ("site/a", "A"),
    ("site/sub", tarfile.DIRTYPE),
    ("site/sub/b", "B"),
    ("site/link", tarfile.SYMTYPE, "a"),
)


async def test_where_things_go(tmp_path):
    tree = archive(tmp_path, *TREE)
    whole = await copied(tree, "site", "/to")
    assert whole.directory == "/to"
    assert sorted(whole.members) == ["a", "link", "sub", "sub/b"]
    assert whole.members["link"][0] == "a"
    below = await copied(tree, "./site/*", "/to")
    assert sorted(below.members) == ["a", "link", "sub", "sub/b"]
    everything = await copied(tree, ".", "/to", packed := "/to")
    assert "site/sub/b" in everything.members
    assert packed
    one = archive(tmp_path, ("site/a", "A"), packed=False)
    renamed = await copied(one, "site/a", "/to/new", mode="0755")
    assert (renamed.directory, renamed.members) == ("/to", {"new": ("A", 0o755)})
    assert (await copied(one, "site/a", "/to/")).members == {"a": ("A", 0o640)}
    assert (await copied(one, "site/a", "/to", "/to")).directory == "/to"


@pytest.mark.parametrize(
    "members",
    [
        [("../out", "x")],
        [("site/../../out", "x")],
        [("/etc/passwd", "x")],
        [("site", tarfile.DIRTYPE), ("site/null", tarfile.CHRTYPE)],
        [("site", tarfile.DIRTYPE), ("site/pipe", tarfile.FIFOTYPE)],
        [("site", tarfile.DIRTYPE), ("site/hard", tarfile.LNKTYPE, "../../etc/shadow")],
        [("site", tarfile.DIRTYPE), ("site/hard", tarfile.LNKTYPE, "/etc/shadow")],
        [("other", "x")],
        [],
    ],
)
async def test_a_hostile_archive_is_refused(tmp_path, members):
    with pytest.raises(TemplateError):
        await copied(archive(tmp_path, *members), "site", "/to")


@pytest.mark.parametrize("cut", [0, 40, 700, 1100])
async def test_what_is_no_whole_archive_is_refused(tmp_path, cut):
    path = archive(tmp_path, ("site/a", "A" * 600), packed=False)
    path.write_bytes(path.read_bytes()[:cut] or b"no archive")
    with pytest.raises(TemplateError):
        await copied(path, "site/a", "/to")


def test_layers_are_merged_without_following_a_link(tmp_path):
    tree, layer, host = (tmp_path / name for name in ("tree", "layer", "host"))
    for directory in (tree, layer / "a" / "b", layer / "c", host / "b"):
        directory.mkdir(parents=True)
    (host / "b" / "victim").write_text("victim")
    (tree / "a").symlink_to(host)
    (tree / "file").symlink_to(host / "b" / "victim")
    (tree / "c").write_text("a file where the layer has a directory")
    (layer / "a" / "b" / "victim").write_text("changed")
    (layer / "file").write_text("changed")
    (layer / "c" / "up").symlink_to("../../host")
    (layer / "c").chmod(0o2750)
    _merge_layer(layer, tree)
    assert (host / "b" / "victim").read_text() == "victim"
    assert sorted(os.listdir(host / "b")) == ["victim"]
    assert not (tree / "a").is_symlink()
    assert (tree / "a" / "b" / "victim").read_text() == "changed"
    assert (tree / "file").read_text() == "changed"
    assert os.readlink(tree / "c" / "up") == "../../host"
    assert (tree / "c").stat().st_mode & 0o7777 == 0o2750
    assert Path(tree / "file").samefile(layer / "file")
