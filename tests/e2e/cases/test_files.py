"""Files: sizes, owners, odd names, special files, full disks, large streams."""

import hashlib
import io
import os
import resource

import pytest

from tupper import (
    FileNotFoundException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    SandboxException,
)

SIZES = (0, 1, 4095, 4096, 4097, 18431, 18432, 65535, 65536, 65537, 1 << 20, (4 << 20) + 1)
LARGE = ((32 << 20) + 1, (100 << 20) + 1)


@pytest.mark.parametrize("size", SIZES + LARGE)
def test_tb027_every_size_arrives_whole(sbx, size, sha, noise):
    data = noise(size)
    sbx.files.write("/tmp/f", data)
    assert sbx.commands.run("sha256sum < /tmp/f").stdout.split()[0] == sha(data)
    assert sha(sbx.files.read("/tmp/f", format="bytes")) == sha(data)


def test_tb027_async(sbx, in_async, sha, noise):
    data = noise((4 << 20) + 1)

    async def body(other):
        await other.files.write("/tmp/fa", data)
        return await other.files.read("/tmp/fa", format="bytes")

    assert sha(in_async(sbx, body)) == sha(data)


def test_tb029_what_the_api_makes_belongs_to_the_user(sbx):
    sbx.commands.run("rm -rf ~/p ~/n")
    sbx.files.make_dir("/home/user/n/m")
    sbx.files.write("/home/user/p/q/r.txt", "x")
    result = sbx.commands.run(
        "mv ~/p/q/r.txt ~/n/m/ && touch ~/p/q/z && stat -c %U:%a ~/p ~/p/q ~/n/m/r.txt"
    )
    assert result.stdout == "user:755\nuser:755\nuser:644\n"
    sbx.files.write("/home/user/p/root/file", "x", user="root")
    stat = sbx.commands.run("stat -c %U ~/p/root ~/p/root/file")
    assert stat.stdout == "root\nroot\n"


def test_tb067_a_full_disk(make):
    sandbox = make(disk=256)
    filled = sandbox.commands.run("dd if=/dev/zero of=/tmp/fill bs=1M 2>&1; true", timeout=120)
    assert "No space left" in filled.stdout
    assert sandbox.commands.run("echo ok").stdout == "ok\n"
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/tmp/x", b"x" * (1 << 20))
    assert not sandbox.files.exists("/tmp/x")
    assert sandbox.files.read("/etc/hostname")
    sandbox.commands.run("rm /tmp/fill")
    sandbox.files.write("/tmp/x", b"x" * (1 << 20))
    assert sandbox.kill() is True


def test_tb069_large_files_are_streams(make, noise):
    sandbox = make(memory=512)
    block = noise(1 << 20)
    count = 1200
    digest = hashlib.sha256()

    class Source(io.RawIOBase):
        left = count

        def readable(self):
            return True

        def readinto(self, buffer):
            if not self.left:
                return 0
            self.left -= 1
            piece = block[: len(buffer)]
            buffer[: len(piece)] = piece
            digest.update(piece)
            return len(piece)

    before = _peak_kib()
    sandbox.files.write("/home/user/big", io.BufferedReader(Source(), 1 << 20))
    inside = sandbox.commands.run("sha256sum < /home/user/big", timeout=300).stdout.split()[0]
    assert inside == digest.hexdigest()
    back = hashlib.sha256()
    for chunk in sandbox.files.read("/home/user/big", format="stream"):
        back.update(chunk)
    assert back.hexdigest() == digest.hexdigest()
    assert _peak_kib() - before < 100 * 1024


def _peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


NAMES = [
    "-rf", "a b", "a\nb", " lead", "trail ", "tab\t", "'q'", '"d"', "$HOME", "`id`", "*", "...",
    "x" * 255, "日", "\u00e9", "e\u0301", "back\\slash", "%2F", "a;b",
]  # fmt: skip


def test_tb071_odd_names(sbx):
    base = "/tmp/odd"
    sbx.commands.run(f"rm -rf {base}")
    for name in NAMES:
        sbx.files.write(f"{base}/{name}", name)
    assert sorted(entry.name for entry in sbx.files.list(base)) == sorted(NAMES)
    for name in NAMES:
        path = f"{base}/{name}"
        assert sbx.files.read(path) == name
        assert sbx.files.get_info(path).size == len(name.encode())
        sbx.files.rename(path, f"{base}/renamed")
        assert sbx.files.read(f"{base}/renamed") == name
        sbx.files.remove(f"{base}/renamed")
    assert sbx.files.list(base) == []


def test_tb071_names_that_are_no_text(sbx):
    sbx.commands.run(
        "rm -rf /tmp/raw; mkdir /tmp/raw; cd /tmp/raw; touch plain \"$(printf 'a\\377b')\""
    )
    names = [entry.name for entry in sbx.files.list("/tmp/raw")]
    assert len(names) == 2
    assert "plain" in names


def test_tb071_names_that_cannot_be(sbx):
    with pytest.raises(SandboxException, match="too long"):
        sbx.files.write("/tmp/" + "x" * 256, "x")
    with pytest.raises(InvalidArgumentException):
        sbx.files.write("/tmp/a\0b", "x")


def test_tb073_files_without_a_size(sbx):
    assert "processor" in sbx.files.read("/proc/cpuinfo")
    assert sbx.files.read("/dev/null") == "" if _reads_null(sbx) else True
    assert [entry for entry in sbx.files.list("/proc") if entry.name == "self"]
    assert sbx.files.list("/dev")


def _reads_null(sbx):
    try:
        sbx.files.read("/dev/null")
    except SandboxException:
        return False
    return True


@pytest.mark.parametrize("path", ["/tmp/ff", "/dev/zero"])
def test_tb073_files_that_never_end(sbx, path):
    sbx.commands.run("rm -f /tmp/ff; mkfifo /tmp/ff")
    with pytest.raises(SandboxException, match="not a regular file"):
        sbx.files.read(path, request_timeout=20)
    with pytest.raises(SandboxException, match="not a regular file"):
        sbx.files.write("/tmp/ff", "x", request_timeout=20)


def test_tb109_large_sizes_and_long_paths(make):
    sandbox = make(disk=12 * 1024)
    for size in ((1 << 31) - 1, 1 << 31, (1 << 32) + 1):
        sandbox.commands.run(f"truncate -s {size} /home/user/sparse")
        assert sandbox.files.get_info("/home/user/sparse").size == size
    deep = "/home/user/" + "/".join(["d" * 70] * 50)
    assert len(deep) > 3500
    sandbox.files.write(f"{deep}/f", "deep")
    assert sandbox.files.read(f"{deep}/f") == "deep"
    with pytest.raises(SandboxException):
        sandbox.files.write("/home/user/" + "/".join(["d" * 200] * 25), "x")


def test_tb109_streams_past_two_gigabytes(make, sha):
    sandbox = make(disk=12 * 1024)
    size = (1 << 31) + 1
    sandbox.commands.run(
        f"truncate -s {size} sparse; printf end | dd of=sparse bs=1 seek={size - 3} conv=notrunc"
    )
    length = 0
    tail = b""
    for chunk in sandbox.files.read("/home/user/sparse", format="stream"):
        length += len(chunk)
        tail = (tail + chunk)[-3:]
    assert (length, tail) == (size, b"end")


def test_missing_files_are_typed(sbx):
    with pytest.raises(FileNotFoundException, match="/tmp/no-such"):
        sbx.files.read("/tmp/no-such")
    assert sbx.files.exists("/tmp/no-such") is False
    with pytest.raises(FileNotFoundException):
        sbx.files.rename("/tmp/no-such", "/tmp/other")
    sbx.files.remove("/tmp/no-such")


def test_trees_up_and_down(sbx, tmp_path):
    source = tmp_path / "tree"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "f").write_text("deep")
    (source / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (source / "run.sh").chmod(0o755)
    os.symlink("a/b/f", source / "link")
    sbx.commands.run("rm -rf /tmp/tree")
    sbx.files.upload(source, "/tmp/tree")
    result = sbx.commands.run("cd /tmp/tree; ./run.sh; cat link; stat -c %U a/b/f")
    assert result.stdout == "hi\ndeepuser\n"
    target = tmp_path / "back"
    sbx.files.download("/tmp/tree", target)
    assert (target / "a" / "b" / "f").read_text() == "deep"
    assert os.readlink(target / "link") == "a/b/f"
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
