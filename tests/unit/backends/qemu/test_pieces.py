import json
import os
import socket
import stat
from pathlib import Path

import pytest

from tupper.backends.qemu import command, console, copying, kvm, program, reason, tap
from tupper.backends.qemu.options import Accel, Options, parse_options
from tupper.core.backend import Attachment
from tupper.core.errors import DeadlineExceeded, InvalidArgument, MachineFailed
from tupper.core.lifecycle import EndReason

BOOT = command.Boot("/proc/self/fd/3", "/proc/self/fd/4", "console=ttyS0", ("-M", "microvm"))


def spec(**changes):
    values = {
        "name": "t-x", "accel": Accel.TCG, "boot": BOOT, "memory_mib": 256, "cpus": 1,
        "ram": "/proc/self/fd/9", "control": 5, "console": 6,
    }  # fmt: skip
    return command.Spec(**{**values, **changes})


def words_after(argv, option):
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def test_command_line_of_a_fresh_machine():
    drives = (command.Drive("tupper-root", 7, True), command.Drive("tupper-disk", 8, False))
    argv = command.render("/usr/bin/qemu", spec(drives=drives, channel=9, tap=10))
    assert argv[0] == "/usr/bin/qemu"
    assert "-nodefaults" in argv
    assert "-incoming" not in argv
    assert words_after(argv, "-sandbox") == [
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    ]
    assert words_after(argv, "-accel") == ["tcg,tb-size=64"]
    assert words_after(argv, "-object") == [
        "memory-backend-file,mem-path=/proc/self/fd/9,share=on,id=ram,size=256M"
    ]
    assert words_after(argv, "-netdev") == ["tap,id=net,fd=10"]
    blocks = [json.loads(word) for word in words_after(argv, "-blockdev")]
    assert [block["read-only"] for block in blocks] == [True, True, False, False]
    assert [block["filename"] for block in blocks if block["driver"] == "file"] == [
        "/dev/fdset/1",
        "/dev/fdset/2",
    ]
    assert words_after(argv, "-add-fd") == ["fd=7,set=1", "fd=8,set=2"]


def test_command_line_of_a_saved_machine():
    argv = command.render("q", spec(accel=Accel.KVM, incoming=True))
    assert words_after(argv, "-incoming") == ["defer"]
    assert words_after(argv, "-cpu") == ["host,migratable=on"]
    assert "-netdev" not in argv
    assert not [word for word in argv if "virtserialport" in word]


@pytest.mark.parametrize(("cpus", "processors"), [(0.1, 1), (1, 1), (1.5, 2), (2.0, 2), (3.2, 4)])
def test_processors(cpus, processors):
    assert command.processors(cpus) == processors


def test_own_user_has_nothing():
    argv = command.as_user(7, ["qemu"])
    assert argv[-1] == "qemu"
    assert {"--reuid=7", "--clear-groups", "--no-new-privs", "--bounding-set=-all"} <= set(argv)


@pytest.mark.parametrize(
    ("text", "version", "numbers"),
    [
        (
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright",
            "7.2.22 (Debian 1:7.2+dfsg-7)",
            (7, 2),
        ),
        ("QEMU emulator version 10.0.2\n", "10.0.2", (10, 0)),
        ("QEMU emulator version 9.1", "9.1.0", (9, 1)),
        ("something else", "", (0, 0)),
        ("", "", (0, 0)),
    ],
)
def test_version(text, version, numbers):
    assert program.parse_version(text) == (version, numbers)


def test_options():
    given = {"accel": "tcg", "qemu": "/q", "kernel": "/k"}
    assert parse_options(given, settings=True) == Options(Accel.TCG, "/q", "/k")
    assert parse_options({"accel": "auto"}, settings=True) == Options()
    assert parse_options({}) == Options()


@pytest.mark.parametrize(
    ("given", "settings", "text"),
    [
        ({"accel": "xen"}, True, "accel 'xen'"),
        ({"acel": "kvm"}, True, "acel"),
        ({"accel": "kvm"}, False, "accel"),
        ({"qemu": 3}, True, "path"),
    ],
)
def test_options_that_are_refused(given, settings, text):
    with pytest.raises(InvalidArgument, match=text):
        parse_options(given, settings=settings)


PANIC = "[    3.2] Kernel panic - not syncing: "


@pytest.mark.parametrize(
    ("console", "oom", "expected", "text"),
    [
        ("", False, EndReason.MACHINE_DIED, "outside"),
        ("", True, EndReason.OUT_OF_MEMORY, "256 MiB"),
        (f"{PANIC}sysrq triggered crash\r\n", False, EndReason.KERNEL_PANIC, "sysrq"),
        (f"{PANIC}Attempted to kill init! exitcode=9\n", False, EndReason.AGENT_DIED, "ended"),
        (f"{PANIC}System is deadlocked on memory\n", False, EndReason.OUT_OF_MEMORY, "256"),
        ("[ 9.1] reboot: System halted\r\n", False, EndReason.POWERED_OFF, "off"),
        ("[ 9.1] reboot: Restarting system\n", False, EndReason.POWERED_OFF, "restarted"),
        ("tupper: end deadline\r\n", False, EndReason.AGENT_DIED, "deadline"),
        ("tupper: failed no tupper-root\r\n", False, EndReason.MACHINE_DIED, "no tupper-root"),
        ("tupper: end asked\n[ 2] reboot: Restarting system\n", False, EndReason.AGENT_DIED, "ask"),
    ],
)
def test_reasons(console, oom, expected, text):
    found = reason.explain(console, "words", memory_mib=256, was_oom_killed=oom)
    assert found.reason is expected
    assert text in found.detail
    assert found.last_words == "words"


def test_network_as_ip_is_told():
    attachment = Attachment(netns="n", interface="eth0", mtu=1400)
    text = tap.render(attachment, make=False)
    assert text.splitlines()[0].startswith("link add br0 mtu 1400")
    assert "address flush dev eth0" in text
    assert tap.render(attachment, make=True).startswith("tuntap add dev tap0 mode tap")


async def test_kvm_that_is_not_there(tmp_path):
    assert "there is no" in (await kvm.why_not(tmp_path / "kvm")).reason


async def test_kvm_without_the_extension(tmp_path):
    (tmp_path / "kvm").touch()
    said = await kvm.why_not(tmp_path / "kvm", "flags : fpu vme\n", machine="x86_64")
    assert "neither vmx nor svm" in said.reason


def status(mode, gid=0):
    return os.stat_result((stat.S_IFCHR | mode, 0, 0, 1, 0, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("device", "is_open", "gid"),
    [
        (status(0o660, 36), True, 36),
        (status(0o666, 36), True, 0),
        (status(0o666), True, 0),
        (status(0o660), False, 0),  # QEMU never gets root's group
        (status(0o640, 36), False, 0),
        (status(0o600, 36), False, 0),
    ],
)
def test_who_may_open_the_device(device, is_open, gid):
    assert kvm.is_open_to_qemu(device) is is_open
    assert kvm.group_of(device) == gid


def test_own_user_in_the_group_of_the_device():
    argv = command.as_user(7, ["qemu"], gid=36)
    assert "--groups=36" in argv
    assert "--clear-groups" not in argv


@pytest.mark.parametrize(
    ("text", "has"),
    [("flags\t\t: fpu svm", True), ("flags : vmx", True), ("flags : vmxx", False), ("", False)],
)
def test_extensions(text, has):
    assert kvm.has_extension(text) is has


def test_processor_is_named_without_what_a_kernel_changes():
    one = "processor: 0\nvendor_id : AuthenticAMD\nmodel\t: 1\nflags : a b\nbogomips : 1\n\n"
    assert kvm.processor(one + "processor: 1\nvendor_id : other") == "AuthenticAMD 1"
    assert kvm.processor("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n") == "0x41 0xd0c"
    assert kvm.processor()


def sparse(path, *pieces, size=1 << 22):
    with path.open("wb") as file:
        file.truncate(size)
        for at, data in pieces:
            file.seek(at)
            file.write(data)
    return path


def digest_of(path):
    source = os.open(path, os.O_RDONLY)
    try:
        return copying.copy(source)
    finally:
        os.close(source)


def test_a_copy_is_the_same_and_has_its_holes(tmp_path):
    source = sparse(tmp_path / "a", (70_000, b"x" * 10), (3 << 20, b"y" * 200_000))
    number = os.open(source, os.O_RDONLY)
    digest = copying.keep(number, tmp_path / "b")
    os.close(number)
    assert (tmp_path / "b").read_bytes() == source.read_bytes()
    assert (tmp_path / "b").stat().st_blocks * 512 < 1 << 20
    assert digest_of(tmp_path / "b") == digest
    # Zeros that are written down count as the holes that they could be.
    full = tmp_path / "c"
    full.write_bytes(source.read_bytes())
    assert digest_of(full) == digest


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: sparse(path, (5, b"z"), size=path.stat().st_size),
        lambda path: path.write_bytes(b""),
    ],
)
def test_damage_is_found(tmp_path, harm):
    path = sparse(tmp_path / "a", (70_000, b"x" * 10))
    digest = digest_of(path)
    copying.opened(path, digest)
    harm(path)
    with pytest.raises(MachineFailed, match="damaged"):
        copying.opened(path, digest)


def test_memory_is_filled_and_keeps_its_size(tmp_path):
    path = sparse(tmp_path / "a", (70_000, b"x" * 10), (3 << 20, b"y" * 200_000))
    source, memory = copying.opened(path, digest_of(path)), copying.memory(4)
    copying.pour(source, memory)
    assert os.pread(memory.descriptor, 1 << 23, 0) == path.read_bytes()
    assert os.fstat(memory.descriptor).st_blocks * 512 < 1 << 20
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 5)


def test_a_file_that_is_written_to_is_not_what_it_was(tmp_path):
    path = sparse(tmp_path / "a", (5, b"x"))
    opened = copying.opened(path, digest_of(path))
    assert opened.is_unchanged
    os.truncate(path, 3)
    assert not opened.is_unchanged


async def test_a_sign_on_the_console():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.send(b"booting\r\nnot tupper: waiting\r\ntupper: wai")
        theirs.send(b"ting\r\n")
        assert "booting" in await console.hear(ours, "tupper: waiting", timeout_s=10)
        with pytest.raises(DeadlineExceeded):
            await console.hear(ours, "tupper: waiting", timeout_s=0.01)
        theirs.send(b"[ 1.0] Kernel panic - not syncing: VFS: no root\r\n")
        with pytest.raises(MachineFailed, match="VFS: no root"):
            await console.hear(ours, "tupper: waiting", timeout_s=10)
        theirs.close()
        with pytest.raises(MachineFailed, match="ended"):
            await console.hear(ours, "tupper: waiting", timeout_s=10)


def test_no_directory_is_named_twice():
    from tupper.backends.qemu.layout import Layout

    layout = Layout(Path("/m"))
    names = [
        layout.run, layout.control, layout.agent, layout.channel, layout.output, layout.console,
        layout.relay_output, layout.older_console, layout.settings, layout.news,
    ]  # fmt: skip
    assert len(set(names)) == len(names)
