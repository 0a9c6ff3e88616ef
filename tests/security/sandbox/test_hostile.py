"""Root inside, and images that lie: nothing of the host changes, nothing of it is seen."""

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from oci_writer import Item, Layout, directory, symlink
from tupper import InvalidArgumentException, Sandbox
from tupper.core.paths import find_paths

pytestmark = [pytest.mark.root, pytest.mark.gvisor]

HOST_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/passwd", "/etc/shadow")
USERS = [
    directory("etc"),
    Item("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"),
    Item("etc/group", b"root:x:0:\n"),
]
UP = "/../../../../../../.."


def stamp(root):
    """A digest of names, modes, owners, sizes and times of a whole tree."""
    digest = hashlib.sha256()
    for place, directories, files in os.walk(root):
        directories.sort()
        for name in (".", *directories, *sorted(files)):
            path = Path(place, name)
            s = path.lstat()
            text = f"{path} {s.st_mode} {s.st_uid} {s.st_gid} {s.st_size} {s.st_mtime_ns}"
            digest.update(text.encode(errors="surrogateescape"))
    return digest.hexdigest()


def stamps():
    roots = (find_paths().data / "images" / "roots").glob("*/rootfs")
    return {str(root): stamp(root) for root in roots}


def host():
    files = {name: Path(name).read_bytes() for name in HOST_FILES if Path(name).is_file()}
    return files, sorted(os.listdir("/")), Path("/tmp/agent.sock").exists()


def busybox():
    roots = (find_paths().data / "images" / "roots").glob("*/rootfs")
    return next(p for root in roots for p in root.rglob("busybox") if p.is_file()).read_bytes()


WRITES = r"""
echo x >> /etc/passwd; rm -rf /home/user /usr/share; mv /bin/busybox /bin/b2; cp /bin/b2 /bin/busybox
chmod 0777 / /etc /bin; chown 1000 /etc /bin; touch /bin/new /.tupper/new; mkdir -p /.tupper/d
rm -rf /tmp/.X11-unix /run/tupper/*; ln -s /etc/shadow /run/tupper/agent.sock
for i in 1 2 3 4 5 6 7 8 9; do echo $i > /run/tupper/f$i; done; head -c 4000000 /dev/zero > /run/tupper/big
for f in 0 1 2; do head -c 4000000 /dev/zero > /proc/1/fd/$f; done
for f in /.tupper/agent /usr/local/bin/sudo /usr/bin/sudo; do echo x > $f; rm -f $f; chmod 777 $f; done
exit 0
"""


def test_root_inside_changes_nothing_that_others_stand_on():
    with Sandbox.create("minimal", timeout=300) as other:
        before = stamps(), host()
        agent = stamp(Path(find_agent()).parent)
        with Sandbox.create("minimal", timeout=300) as sandbox:
            sandbox.commands.run(WRITES, user="root", timeout=60)
            assert sandbox.commands.run("echo still", user="root").stdout == "still\n"
        assert (stamps(), host()) == before
        assert stamp(Path(find_agent()).parent) == agent
        assert other.commands.run("test ! -e /bin/new && echo clean").stdout == "clean\n"


def find_agent():
    from tupper.guest import find_agent_binary

    return find_agent_binary()


IMAGES = {
    "passwd leads out": [directory("etc"), symlink("etc/passwd", f"{UP}/etc/shadow")],
    "passwd through proc": [directory("etc"), symlink("etc/passwd", "/proc/self/root/etc/shadow")],
    "passwd is a directory": [directory("etc"), directory("etc/passwd"), directory("etc/group")],
    "passwd is a fifo": [directory("etc"), Item("etc/passwd", kind=tarfile.FIFOTYPE)],
    "passwd is memory": [
        directory("etc"),
        Item("etc/passwd", kind=tarfile.CHRTYPE, device=(1, 1), mode=0o666),
    ],
    "TB035 names lead out": [
        *USERS,
        symlink("etc/resolv.conf", f"{UP}/etc/resolv.conf"),
        symlink("etc/hosts", "/etc/hosts"),
        symlink("etc/hostname", "/proc/sys/kernel/hostname"),
    ],
    "run is everything": [*USERS, symlink("run", "/")],
    "run/tupper leads out": [*USERS, directory("run"), symlink("run/tupper", f"{UP}/tmp")],
    "tmp is everything": [*USERS, symlink("tmp", "/")],
    ".tupper is etc": [*USERS, symlink(".tupper", "/etc")],
    "the agent leads out": [
        *USERS, directory(".tupper"), symlink(".tupper/agent", f"{UP}/etc/hostname"),
    ],
    "sudo leads out": [
        *USERS, directory("usr"), directory("usr/bin"), symlink("usr/bin/sudo", f"{UP}/bin/sh"),
    ],
    "home leads out": [*USERS, directory("home"), symlink("home/user", f"{UP}/root")],
    "proc is etc": [*USERS, symlink("proc", "/etc")],
    "etc leads out": [symlink("etc", f"{UP}/etc")],
    "dev is a file": [*USERS, Item("dev", b"x"), Item("proc", b"x")],
}  # fmt: skip

REFUSED = ("etc leads out", "dev is a file")


@pytest.mark.parametrize("name", IMAGES)
def test_image_that_lies_is_used_or_refused_and_reaches_nothing(tmp_path, name):
    layout, shells = Layout(tmp_path / "image"), [directory("bin")]
    shells.append(Item("bin/busybox", busybox(), mode=0o755))
    shells += [symlink(f"bin/{applet}", "busybox") for applet in ("sh", "cat", "echo")]
    reference = layout.publish(layout.image([[*shells, *IMAGES[name]]]))
    before = host()
    if name in REFUSED:
        with pytest.raises(InvalidArgumentException, match="in this image"):
            Sandbox.create(image=reference, timeout=120, memory=128, disk=128)
    else:
        use(reference)
    assert host() == before


def use(reference):
    with Sandbox.create(image=reference, timeout=120, memory=128, disk=128) as sandbox:
        said = sandbox.commands.run("/bin/cat /etc/passwd /etc/shadow; echo ran", user="0").stdout
        assert said.endswith("ran\n")
        assert Path("/etc/shadow").read_text().splitlines()[0] not in said
        sandbox.files.write("/etc/written", "x", user="0")
