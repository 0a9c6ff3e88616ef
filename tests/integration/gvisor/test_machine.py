"""What a guest sees and what it cannot do, tried by a script in the agent's place."""

import asyncio
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend_parts import host_root, make_plan, remove, shared_data_dir, temporary
from tupper.backends.gvisor import GVisor
from tupper.core.backend import Attachment, BackendContext, ImageConfig, Mount, Rootfs
from tupper.core.cgroup import Cgroup, find_hierarchy
from tupper.core.errors import BackendUnavailable, InvalidArgument, MachineFailed
from tupper.core.ids import new_sandbox_id
from tupper.core.lifecycle import EndReason
from tupper.testing.contract import assert_nothing_left

pytestmark = pytest.mark.root

_DEADLINE_S = 60.0
_AFTER_START = "while ! ls /run/tupper/go; do sleep 0.05; done\n"


@pytest.fixture
def top():
    place = temporary("tg-")
    yield place
    remove(place)


@pytest.fixture
def root(top):
    return host_root(top / "root")


@pytest.fixture
async def backend():
    backend = GVisor(BackendContext(shared_data_dir(), "t", {}))
    probe = await backend.probe()
    if not probe.usable:
        pytest.skip(probe.reason)
    return backend


class Guest:
    """A machine whose first process is a shell script that reports into the shared directory."""

    def __init__(self, backend, top, root, script, **changes):
        sandbox_id = new_sandbox_id()
        directory = top / sandbox_id
        directory.mkdir(mode=0o700)
        program = top / f"{sandbox_id}.sh"
        program.write_text(
            "#!/bin/sh\nPATH=/bin\n"
            f"{{ {script}\n}} >/dev/shm/said 2>&1\n"
            "cat /dev/shm/said >/run/tupper/part; mv /run/tupper/part /run/tupper/said\n"
            "while true; do sleep 100; done\n"
        )
        program.chmod(0o755)
        self.backend = backend
        self.plan = make_plan(directory, sandbox_id, root, agent_binary=program, **changes)
        if self.plan.disk_image is None:
            (directory / "disk.img").unlink()

    async def __aenter__(self):
        self.machine = await self.backend.start(self.plan)
        return self

    async def __aexit__(self, *_):
        await self.machine.stop(grace_s=0)
        await assert_nothing_left(self.plan)

    @property
    def run(self):
        return self.plan.directory / "machine" / "run"

    async def said(self):
        deadline = time.monotonic() + _DEADLINE_S
        path = self.run / "guest" / "said"
        while not path.exists():
            assert time.monotonic() < deadline, f"the guest said nothing: {self.last_words()}"
            await asyncio.sleep(0.01)
        return path.read_text(errors="replace")

    def last_words(self):
        return (self.run / "output").read_text(errors="replace")[-2000:]

    async def end(self):
        return await asyncio.wait_for(self.machine.wait(), _DEADLINE_S)


def listing(root):
    return sorted(
        (str(path.relative_to(root)), path.lstat().st_mode, path.lstat().st_size)
        for path in root.rglob("*")
    )


async def test_guest_has_its_own_files_and_may_replace_them(backend, top, root):
    before = listing(root)
    script = (
        "cat /etc/hosts /etc/resolv.conf; mv /etc/hosts /etc/old; echo new >/etc/hosts\n"
        "cat /etc/hosts; uname -n; rm /bin/true; echo x >/root/x; ls -A /tmp"
    )
    async with Guest(backend, top, root, script) as guest:
        assert (await guest.said()).splitlines() == [
            *("127.0.0.1 localhost box", "nameserver 192.0.2.1", "new", "box", ".X11-unix"),
        ]
    assert listing(root) == before  # also no mount points were made in it


async def test_memory_that_the_guest_sees_is_its_limit(backend, top, root):
    async with Guest(backend, top, root, "head -1 /proc/meminfo", memory_mib=200) as guest:
        assert (await guest.said()).split()[1:] == [str(200 * 1024), "kB"]


async def test_tb035_links_in_the_image_do_not_lead_out(backend, top, root):
    victim = top / "victim"
    victim.write_text("mine")
    (root / "etc" / "resolv.conf").symlink_to(victim)
    (root / "etc" / "hosts").symlink_to("/run/systemd/resolve/gone")
    (top / "outside").mkdir()
    (root / "srv").symlink_to(top / "outside")
    (top / "shared").mkdir()
    mounts = (Mount(top / "shared", "/srv/data"),)
    script = "cat /etc/resolv.conf /etc/hosts; echo hello >/srv/data/x && echo done"
    async with Guest(backend, top, root, script, mounts=mounts) as guest:
        said = await guest.said()
    assert said.splitlines() == ["nameserver 192.0.2.1", "127.0.0.1 localhost box", "done"]
    assert victim.read_text() == "mine"
    assert (top / "shared" / "x").read_text() == "hello\n"
    assert list((top / "outside").iterdir()) == []


async def test_mounts_keep_their_promise(backend, top, root):
    for name in ("ro", "rw"):
        (top / name).mkdir()
        (top / name / "file").write_text(name)
    mounts = (Mount(top / "ro", "/mnt/ro", read_only=True), Mount(top / "rw", "/mnt/rw"))
    script = (
        "cat /mnt/ro/file /mnt/rw/file; echo\n"
        "for d in ro rw; do echo x >/mnt/$d/new && echo $d written; done; rm /mnt/ro/file"
    )
    async with Guest(backend, top, root, script, mounts=mounts) as guest:
        said = await guest.said()
    assert "rorw" in said
    assert "rw written" in said
    assert "ro written" not in said
    assert (top / "ro" / "file").exists()
    assert (top / "rw" / "new").read_text() == "x\n"


async def test_disk_is_limited_and_the_space_comes_back(backend, top, root):
    script = (
        "dd if=/dev/zero of=/tmp/big bs=1M count=400 || echo full; rm /tmp/big\n"
        "dd if=/dev/zero of=/root/small bs=1M count=100 && echo fits"
    )
    async with Guest(backend, top, root, script) as guest:
        said = await guest.said()
        assert "No space left on device" in said
        assert said.index("full") < said.index("fits")
        assert (await guest.machine.usage()).disk_bytes <= 256 << 20
    assert guest.plan.disk_image.stat().st_size == 256 << 20


async def test_guest_cannot_fill_the_host_through_what_it_shares(backend, top, root):
    script = (
        "dd if=/dev/zero of=/proc/1/fd/1 bs=64k count=1000; head -c 50000000 /dev/zero >/proc/1/fd/2\n"
        "dd if=/dev/zero of=/run/tupper/flood bs=64k count=1000; rm /run/tupper/flood; echo alive"
    )
    # Standard output goes to the report here, so the flood goes where the agent's output would go.
    script = f"{{ {script}\n}} </dev/null"
    async with Guest(backend, top, root, script) as guest:
        assert "alive" in await guest.said()
        used = sum(path.lstat().st_blocks * 512 for path in guest.run.rglob("*"))
        assert used <= 2 << 20
        assert (
            "tmpfs"
            in subprocess.run(
                ["stat", "-f", "-c", "%T", guest.run], capture_output=True, text=True, check=True
            ).stdout
        )


async def test_end_of_the_first_process_is_told(backend, top, root):
    async with Guest(backend, top, root, "true") as guest:
        await guest.said()
    async with Guest(backend, top, root, _AFTER_START + "exit 7") as guest:
        (guest.run / "guest" / "go").touch()
        end = await guest.end()
    assert end.reason is EndReason.AGENT_DIED
    assert "status 7" in end.detail


async def test_what_the_host_runs_inside_has_no_parent_there(backend, top, root):
    """By that the agent spares it when it ends all the rest."""
    async with Guest(backend, top, root, "true") as guest:
        await guest.said()
        data, state = guest.machine.record.data, guest.plan.directory / "machine" / "state"
        argv = [data["runsc"], f"--root={state}", "exec", guest.plan.sandbox_id]
        status = ("/bin/cat", "/proc/self/status")
        said = await asyncio.to_thread(
            subprocess.run, [*argv, *status], capture_output=True, text=True, check=True, timeout=60
        )
    assert "PPid:\t0\n" in said.stdout


async def test_end_by_lack_of_memory_is_told(backend, top, root):
    options = {"platform": "ptrace"}  # where the whole sandbox ends
    async with Guest(backend, top, root, _AFTER_START + "tail /dev/zero", options=options) as guest:
        (guest.run / "guest" / "go").touch()
        end = await guest.end()
    assert end.reason is EndReason.OUT_OF_MEMORY
    assert "256 MiB" in end.detail


async def test_cpus_are_limited(backend, top, root):
    hierarchy = find_hierarchy()
    if hierarchy is None or "cpu" not in hierarchy.roots:
        pytest.skip("this host has no control group for the processor")
    script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done"
    async with Guest(backend, top, root, script, cpus=0.2) as guest:
        assert await guest.said() == "done\n"
        group = Cgroup.named(hierarchy, guest.plan.host_name)
        stat = next(path for path in group.paths if (path / "cpu.stat").exists()) / "cpu.stat"
        numbers = dict(line.split() for line in stat.read_text().splitlines())
    assert int(numbers["nr_throttled"]) > 0


async def test_no_network_means_none(backend, top, root):
    async with Guest(backend, top, root, "cat /proc/net/dev") as guest:
        devices = [line.split(":")[0].strip() for line in (await guest.said()).splitlines()[2:]]
    assert devices == ["lo"]


async def test_network_is_the_one_of_the_namespace(backend, top, root):
    name = f"tgv-{os.getpid()}"
    ip = ["ip", "-n", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(
            [*ip, "link", "add", "eth0", "type", "veth", "peer", "name", "p0"], check=True
        )
        for device in ("lo", "p0", "eth0"):
            subprocess.run([*ip, "link", "set", device, "up"], check=True)
        subprocess.run([*ip, "addr", "add", "192.0.2.2/30", "dev", "eth0"], check=True)
        attachment = Attachment(netns=name, interface="eth0", address="192.0.2.2/30")
        script = "cat /proc/net/dev"
        async with Guest(backend, top, root, script, attachment=attachment) as guest:
            assert "eth0" in await guest.said()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


async def test_build_writes_into_the_root_filesystem(backend, top, root):
    script = "echo built >/root/built; cat /etc/hosts"
    async with Guest(backend, top, root, script, disk_image=None) as guest:
        assert "localhost box" in await guest.said()
    assert (root / "root" / "built").read_text() == "built\n"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"memory_mib": 1}, InvalidArgument),
        ({"rootfs": Rootfs("sha256:0", Path("/nonexistent-root"), ImageConfig())}, MachineFailed),
        ({"attachment": Attachment(netns="no-such-namespace")}, MachineFailed),
        ({"mounts": (Mount(Path("/nonexistent-mount"), "/x"),)}, MachineFailed),
        ({"options": {"platform": "kvm"}}, BackendUnavailable),
    ],
)
async def test_tb089_refused_starts_leave_nothing_and_tell_no_host_path(
    backend, top, root, changes, error
):
    if error is BackendUnavailable and await backend._prober.why_not("kvm") == "":
        pytest.skip("KVM works for gVisor here")
    guest = Guest(backend, top, root, "true", **changes)
    with pytest.raises(error) as caught:
        await backend.start(guest.plan)
    assert str(top) not in caught.value.message
    await assert_nothing_left(guest.plan)


async def test_tb089_corrupt_disk(backend, top, root):
    guest = Guest(backend, top, root, "true")
    guest.plan.disk_image.write_bytes(b"\0" * (8 << 20))
    with pytest.raises(MachineFailed) as caught:
        await backend.start(guest.plan)
    assert str(top) not in caught.value.message
    await assert_nothing_left(guest.plan)


async def test_twenty_at_once(backend, top, root):
    guests = [Guest(backend, top, root, "echo here") for _ in range(20)]
    machines = await asyncio.gather(*(backend.start(guest.plan) for guest in guests))
    try:
        for guest, machine in zip(guests, machines, strict=True):
            guest.machine = machine
            assert await guest.said() == "here\n"
    finally:
        await asyncio.gather(*(machine.stop(grace_s=0) for machine in machines))
    for guest in guests:
        await assert_nothing_left(guest.plan)


async def test_settings_choose_the_platform(top, root):
    backend = GVisor(BackendContext(shared_data_dir(), "t", {"platform": "ptrace"}))
    probe = await backend.probe()
    assert probe.usable, probe.reason
    assert probe.mechanism == "gVisor ptrace"
    plan = Guest(backend, top, root, "true").plan
    machine = await backend.start(replace(plan, options={"platform": "systrap"}))
    await machine.stop(grace_s=0)
    await assert_nothing_left(plan)
