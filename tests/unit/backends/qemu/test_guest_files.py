"""The first file system, and what a guest is told; nothing is started."""

import json
from pathlib import Path

from tupper.backends.qemu import guest, initramfs
from tupper.backends.qemu.kernel import Kernel
from tupper.core.backend import Attachment, MachinePlan, Mount, Rootfs


def kernel_with(tmp_path, *modules, acpi=False):
    paths = []
    for number, data in enumerate(modules):
        path = tmp_path / f"{number:02}-m{number}.ko"
        path.write_bytes(data)
        paths.append(path)
    return Kernel(tmp_path / "vmlinux", tuple(paths), "6.1", "test", "digest", acpi)


def parse_archive(raw):
    """Name → (mode, data, device), by the format's own rules."""
    out, at = {}, 0
    while True:
        assert raw[at : at + 6] == b"070701"
        fields = [int(raw[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        size, name_size = fields[6], fields[11]
        name = raw[at + 110 : at + 110 + name_size - 1].decode()
        at += (110 + name_size + 3) // 4 * 4
        data = raw[at : at + size]
        at += (size + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert at == len(raw)
            return out
        out[name] = (fields[1], data, (fields[9], fields[10]))


def test_the_archive(tmp_path):
    agent = tmp_path / "agent"
    agent.write_bytes(b"the agent")
    made = initramfs.build(tmp_path, kernel_with(tmp_path, b"one", b"three"), agent)
    entries = parse_archive(made.read_bytes())
    assert entries["init"] == (0o100755, b"the agent", (0, 0))
    assert entries["dev/console"] == (0o020600, b"", (5, 1))
    assert entries["modules/00-m0.ko"][1] == b"one"
    assert entries["modules/01-m1.ko"][1] == b"three"
    assert list(entries).index("modules") < list(entries).index("modules/00-m0.ko")
    assert "modules" not in parse_archive(
        initramfs.build(tmp_path, kernel_with(tmp_path), agent).read_bytes()
    )


def test_the_archive_is_kept_by_content(tmp_path):
    agent = tmp_path / "agent"
    agent.write_bytes(b"the agent")
    first = initramfs.build(tmp_path, kernel_with(tmp_path, b"one"), agent)
    before = first.stat().st_ino
    assert initramfs.build(tmp_path, kernel_with(tmp_path, b"one"), agent) == first
    assert first.stat().st_ino == before
    assert initramfs.build(tmp_path, kernel_with(tmp_path, b"two"), agent) != first
    agent.write_bytes(b"another")
    for number in range(12):
        initramfs.build(tmp_path, kernel_with(tmp_path, b"%d" % number), agent)
    assert len(list((tmp_path / "initramfs").iterdir())) == 8


def test_the_machine_depends_on_the_kernel(tmp_path):
    with_acpi = guest.machine_arguments(kernel_with(tmp_path, acpi=True), machine="x86_64")
    without = guest.machine_arguments(kernel_with(tmp_path), machine="x86_64")
    assert "acpi=on" in with_acpi[1]
    assert "acpi=off" in without[1]
    assert guest.machine_arguments(kernel_with(tmp_path), machine="aarch64")[1].startswith("virt")


def test_the_parameters_depend_on_what_runs_it():
    emulated = guest.command_line(emulated=True, tsc_khz=2000, machine="x86_64").split()
    assert {"tsc_early_khz=2000", "norandmaps", "mitigations=off"} <= set(emulated)
    assert not any(word.startswith("lpj=") for word in emulated)
    timed = guest.command_line(emulated=True, tsc_khz=2_600_000, hz=250, machine="x86_64").split()
    assert "lpj=10400000" in timed
    real = guest.command_line(emulated=False, machine="x86_64")
    assert not any(word in real for word in ("tsc", "norandmaps", "mitigations"))
    other = guest.command_line(emulated=True, tsc_khz=2000, machine="aarch64").split()
    assert {"console=ttyAMA0", "norandmaps"} <= set(other)
    assert "tsc_early_khz=2000" not in other


def plan(**changes):
    values = {
        "sandbox_id": "i" + "a" * 20, "host_name": "h", "directory": Path("/d"),
        "rootfs": Rootfs("sha256:" + "0" * 64, Path("/r"), None), "disk_image": Path("/d/disk"),
        "disk_mib": 100, "attachment": None, "mounts": (), "cpus": 1.0, "memory_mib": 256,
        "pids": 100, "hostname": "name", "agent_binary": Path("/agent"),
        "agent_config": {"accessToken": "secret", "files": {"/etc/x": "1"}},
        "etc_files": {"/etc/hosts": "hosts"},
    }  # fmt: skip
    return MachinePlan(**values | changes)


def test_what_a_guest_is_told():
    told = json.loads(guest.render_settings(plan()))
    assert told["agent"] == {
        "accessToken": "secret",
        "hostname": "name",
        "files": {"/etc/hosts": "hosts", "/etc/x": "1"},
    }
    assert told["network"] is None
    assert told["mounts"] == []
    attachment = Attachment(address="10.0.0.2/30", gateway="10.0.0.1", mtu=1400)
    mounts = (Mount(Path("/a"), "/x"), Mount(Path("/b"), "/y", read_only=True))
    more = json.loads(guest.render_settings(plan(attachment=attachment, mounts=mounts)))
    assert more["network"] == {"address": "10.0.0.2/30", "gateway": "10.0.0.1", "mtu": 1400}
    assert more["mounts"] == [
        {"name": "0", "path": "/x", "readOnly": False},
        {"name": "1", "path": "/y", "readOnly": True},
    ]
    news = json.loads(guest.render_news(plan(attachment=attachment, cold=True)))
    assert news == {"network": more["network"], "cold": True}
