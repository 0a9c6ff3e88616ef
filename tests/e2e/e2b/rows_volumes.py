"""Volumes. Rows of the checklist; see ``rows``."""

import io

from rows_common import dear, new_name, row


def volume_class(w):
    """The class of volumes of this SDK's half, with one face."""
    return w.face(w.sdk.AsyncVolume if w.is_async else w.sdk.Volume)


@row
def row_volumes_made_found_and_removed(w):
    Volume, name = volume_class(w), new_name()
    made = Volume.create(name)
    assert made.name == name
    assert made.token
    assert [each.name for each in Volume.list() if each.volume_id == made.volume_id] == [name]
    info = Volume.get_info(made.volume_id)
    assert (info.name, info.token) == (name, made.token)
    assert Volume.connect(made.volume_id).list("/") == []
    w.raises("VolumeException", lambda: Volume.create(name))
    assert Volume.destroy(made.volume_id) is True
    assert Volume.destroy(made.volume_id) is False
    w.raises("VolumeNotFoundException", lambda: Volume.get_info(made.volume_id))
    w.raises("VolumeNotFoundException", lambda: Volume.connect(made.volume_id))


@row
def row_volumes_content(w):
    Volume = volume_class(w)
    volume = Volume.create(new_name())
    written = volume.write_file("/d/f.txt", "ä text", force=True, mode=0o600)
    assert (written.path, written.size, written.mode) == ("/d/f.txt", 7, 0o600)
    assert written.type == w.sdk.VolumeFileType.FILE
    assert volume.read_file("/d/f.txt") == "ä text"
    assert volume.read_file("d/f.txt", format="bytes") == "ä text".encode()
    assert b"".join(volume.read_file("/d/f.txt", format="stream")) == "ä text".encode()
    volume.write_file("/d/f.txt", io.BytesIO(b"x" * 300_000))
    assert volume.get_info("/d/f.txt").size == 300_000
    made = volume.make_dir("/e/f", force=True, mode=0o711)
    assert (made.type, made.mode) == (w.sdk.VolumeFileType.DIRECTORY, 0o711)
    assert [each.path for each in volume.list("/", depth=2)] == ["/d", "/d/f.txt", "/e", "/e/f"]
    assert volume.update_metadata("/d/f.txt", mode=0o640).mode == 0o640
    assert volume.exists("/d") is True
    volume.remove("/d")
    assert volume.exists("/d") is False
    for call in (
        lambda: volume.read_file("/d/f.txt"),
        lambda: volume.get_info("/none"),
        lambda: volume.list("/none"),
        lambda: volume.remove("/none"),
        lambda: volume.write_file("/none/f", b""),
    ):
        w.raises("VolumePathNotFoundException", call)
    Volume.destroy(volume.volume_id)


@dear
@row
def row_volumes_in_sandboxes(w):
    Volume = volume_class(w)
    volume = Volume.create(new_name())
    volume.write_file("/before", b"from outside")
    one = w.create(volume_mounts={"/mnt/data": getattr(volume, "inner", volume)})
    two = w.create(volume_mounts={"/mnt/data": volume.name})
    assert one.commands.run("cat /mnt/data/before").stdout == "from outside"
    one.commands.run("mkdir /mnt/data/d && echo inside > /mnt/data/d/f")
    one.files.write("/mnt/data/by-files", "1")
    assert two.commands.run("cat /mnt/data/d/f").stdout == "inside\n"
    assert volume.read_file("/d/f") == "inside\n"
    volume.write_file("/later", b"later")
    assert two.files.read("/mnt/data/later") == "later"
    two.commands.run("ln -s /etc/passwd /mnt/data/link && ln -s /d/f /mnt/data/inner")
    assert volume.get_info("/link").type == w.sdk.VolumeFileType.SYMLINK
    w.raises("VolumePathNotFoundException", lambda: volume.read_file("/link"))
    assert volume.read_file("/inner") == "inside\n"
    w.raises("VolumeException", lambda: Volume.destroy(volume.volume_id))
    one.kill()
    two.kill()
    names = [each.path for each in volume.list("/")]
    assert names == ["/before", "/by-files", "/d", "/inner", "/later", "/link"]
    assert Volume.destroy(volume.volume_id) is True
    w.raises("SandboxException", lambda: w.create(volume_mounts={"/mnt/data": volume.name}))
