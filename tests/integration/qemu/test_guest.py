"""The guest side: a kernel, our first file system, and the agent over a port and a relay.

One machine serves most tests, because each start takes seconds under emulation.
"""

import asyncio
import os
import platform
import re
import shutil
import signal
import socket
import stat
from types import SimpleNamespace

import pytest

from backend_parts import remove, temporary
from qemu_raw import PATIENCE_S, Guest, make_root, prepare_kernel
from tupper.backends.qemu import rootimage
from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import ProgramNotFound

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def parts():
    for program in (f"qemu-system-{platform.machine()}", "mksquashfs"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    try:
        home, kernel = asyncio.run(prepare_kernel())
    except ProgramNotFound as error:
        pytest.skip(str(error))
    top = temporary("tg-")
    rootfs = Rootfs(f"sha256:{'0' * 64}", make_root(top), ImageConfig())
    root = asyncio.run(rootimage.image(rootfs, top / "cache"))
    yield SimpleNamespace(top=top, home=home, kernel=kernel, rootfs=rootfs, root=root)
    remove(top)


@pytest.fixture(scope="module")
def machine(parts):
    settings = {
        "agent": {
            "accessToken": "secret",
            "hostname": "inside",
            "sudo": True,
            "files": {"/etc/hosts": "127.0.0.1 inside\n"},
        },
        "network": {"address": "10.0.2.15/24", "gateway": "10.0.2.2", "mtu": 1400},
        "mounts": [{"name": "0", "path": "/data/share", "readOnly": False}],
    }
    share, what = parts.top / "share", (parts.home, parts.kernel, parts.root, settings)
    (share / "0").mkdir(parents=True)
    with Guest(parts.top / "m", *what, network=True, share=share) as guest:
        yield guest


def test_the_agent_answers_with_the_token_only(machine, parts):
    assert machine.ask("GET", "/tupper/status")[0] == 200
    assert machine.ask("GET", "/tupper/status", token="guess")[0] == 401
    assert machine.read("/proc/sys/kernel/osrelease").strip() == parts.kernel.release
    assert stat.S_IMODE(machine.socket.stat().st_mode) == 0o600


def test_the_system_is_complete(machine):
    mounts = {line.split()[1]: line.split() for line in machine.read("/proc/mounts").splitlines()}
    assert mounts["/"][2] == "overlay"
    assert {"/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/sys/fs/cgroup"} <= set(mounts)
    assert mounts["/sys/fs/cgroup"][2] == "cgroup2"
    assert mounts["/usr/local/bin/sudo"]
    assert machine.read("/etc/hosts") == "127.0.0.1 inside\n"
    assert machine.read("/proc/sys/kernel/hostname").strip() == "inside"
    assert re.search(r"Max open files\s+65536\s+65536", machine.read("/proc/1/limits"))
    # Nothing of a sandbox can be read where everybody may look.
    assert "secret" not in machine.read("/proc/cmdline") + machine.read("/proc/1/environ")


def test_the_network_is_as_the_settings_say(machine):
    assert machine.read("/proc/sys/net/ipv6/conf/eth0/mtu").strip() == "1400"
    routes = [line.split() for line in machine.read("/proc/net/route").splitlines()[1:]]
    assert ["eth0", "00000000", "0202000A"] in [route[:3] for route in routes]
    assert ["eth0", "0002000A", "00000000"] in [route[:3] for route in routes]
    assert "10.0.2.15" in machine.read("/proc/net/fib_trie")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there the clock is measured")
def test_its_clock_is_precise(machine):
    """Also on a busy host: otherwise it would step with the timer's ticks."""
    clocks = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    machine.until(lambda: machine.read_short(clocks) == "tsc", "another clock")


def test_a_directory_of_the_host(machine):
    (machine.share / "0" / "from-host").write_text("to the guest")
    assert machine.read("/data/share/from-host") == "to the guest"
    machine.write("/data/share/from-guest", b"to the host")
    assert (machine.share / "0" / "from-guest").read_text() == "to the host"


def test_files_of_any_size_go_both_ways(machine):
    for size in (0, 1, 4096, 32 << 10, (3 << 20) + 7):
        data = os.urandom(size)
        machine.write("/dev/shm/file", data)
        status, got = machine.ask("GET", "/files?username=root&path=/dev/shm/file")
        assert (status, got == data) == (200, True)


def test_many_connections_at_once(machine):
    clients = []
    for _ in range(100):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(machine.socket))
        clients.append(client)
    for client in clients:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    for client in clients:
        assert client.recv(100).startswith(b"HTTP/1.1 204")
        client.close()


def test_a_relay_is_replaced(machine):
    """What was open breaks, what is new works, whatever was on its way; its end is not the guest's."""
    for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        half = socket.socket(socket.AF_UNIX)
        half.settimeout(PATIENCE_S)
        half.connect(str(machine.socket))
        half.sendall(b"POST /files?username=root&path=/tmp/half HTTP/1.1\r\nHost: a\r\n")
        half.sendall(b"X-Access-Token: secret\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 300_000)
        machine.relay.send_signal(end)
        machine.relay.wait(PATIENCE_S)
        machine.socket.unlink(missing_ok=True)
        machine.start_relay()
        assert machine.ask("GET", "/health")[0] == 204
        half.close()
        status, text = machine.ask("GET", "/files?username=root&path=/tmp/half")
        assert status == 404, text[:100]


def test_a_hold_ends_with_a_wake(machine):
    assert machine.ask("POST", "/tupper/hold", b'{"leaseMs":60000}')[0] == 200
    with pytest.raises(OSError, match=r"."):
        machine.ask("GET", "/health")
    before = machine.socket.stat().st_ino
    machine.relay.send_signal(signal.SIGUSR1)
    machine.until(lambda: _inode(machine.socket) not in (before, None), "no new socket")

    def answers():
        try:
            return machine.ask("GET", "/health")[0] == 204
        except OSError:
            return False

    machine.until(answers, "the agent stays held")


def _inode(path):
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def test_it_ends_when_asked(machine):
    """The last one of this machine."""
    assert machine.ask("POST", "/tupper/shutdown", b'{"graceMs":100}')[0] == 204
    assert machine.end() == "end request"
    assert machine.relay.wait(PATIENCE_S) == 0
    assert not machine.socket.exists()


def test_a_machine_that_waits_has_its_disk(parts):
    """It is saved then, with its disk, for others: nothing may be left for them to do."""
    with Guest(parts.top / "w", parts.home, parts.kernel, parts.root, None) as guest:
        guest.until(lambda: "tupper: waiting" in guest.said(), "it does not wait")
        guest.settings = {}
        guest.start_relay()
        assert "overlay / overlay" in guest.read("/proc/mounts")
        assert guest.read("/proc/sys/kernel/hostname").strip() == "inside"


def test_a_disk_that_cannot_be_mounted(parts):
    class Blank(Guest):
        def _make_disk(self):
            with (self.place / "disk").open("wb") as disk:
                disk.truncate(64 << 20)

    with Blank(parts.top / "b", parts.home, parts.kernel, parts.root, None) as guest:
        assert guest.end().startswith("failed mount ext4 on /disk")


def test_settings_that_make_no_sense(parts):
    settings = {"network": {"address": "nonsense"}}
    with Guest(parts.top / "s", parts.home, parts.kernel, parts.root, settings) as guest:
        assert "the network's address" in guest.end()


def test_a_probe_needs_no_device(parts):
    place = parts.top / "p"
    with Guest(place, parts.home, parts.kernel, None, None, parameters="tupper.probe") as guest:
        assert guest.end() == f"probe {parts.kernel.release}"


async def test_root_images_are_kept_and_tidied(parts, monkeypatch):
    home = parts.top / "cache"
    assert await rootimage.image(parts.rootfs, home) == parts.root
    rootimage.tidy(home, frozenset({parts.rootfs.digest}))
    assert parts.root.exists()
    other = Rootfs(f"sha256:{'1' * 64}", parts.rootfs.path, ImageConfig())
    made = await rootimage.image(other, home)
    rootimage.tidy(home, frozenset({parts.rootfs.digest}))
    assert not made.exists()
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("tupper.core.process.minimal_env", lambda: {"PATH": "/nonexistent"})
    with pytest.raises(ProgramNotFound, match="mksquashfs"):
        await rootimage.image(other, home)
    assert sorted(path.name for path in (home / "roots").iterdir()) == [parts.root.name]
