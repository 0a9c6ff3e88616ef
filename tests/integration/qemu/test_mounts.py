"""Directories of the host in a virtual machine, and a guest's root that wants more than them."""

import asyncio
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qemu_guest import Guest, make_backend, make_root, plan_for, until
from tupper.backends.qemu.sharing import share
from tupper.core import kernel
from tupper.core.backend import Capability, Mount, Snapshot
from tupper.core.errors import NotFound, Unsupported
from tupper.testing.contract import assert_nothing_left

pytestmark = [pytest.mark.root, pytest.mark.timeout(180)]
SECRET = "of the host only"
GROUP = 54321
MS_SHARED = 1 << 20


@pytest.fixture(scope="module")
def rootfs(place):
    root = make_root(place)
    (root.path / "srv").mkdir()
    (root.path / "srv" / "link").symlink_to("/data/../data/there")
    return root


@pytest.fixture
async def plan(place, rootfs, backend, tmp_path):
    probe = await backend.probe()
    if Capability.MOUNTS not in probe.capabilities:
        pytest.skip(probe.reason or probe.details["mounts"])
    for name in ("ro", "rw", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(SECRET if name == "outside" else f"{name}\n")
    mounts = (Mount(tmp_path / "ro", "/mnt/ro", read_only=True), Mount(tmp_path / "rw", "/mnt/rw"))
    return plan_for(place, rootfs, mounts=mounts)


def listing(directory):
    return {
        str(path.relative_to(directory)): stat.filemode(path.lstat().st_mode)
        for path in directory.rglob("*")
    }


async def test_owners_modes_and_links_are_the_same_on_both_sides(backend, plan, tmp_path):
    rw = tmp_path / "rw"
    (rw / "theirs").write_text("x")
    os.chown(rw / "theirs", 1000, 65534)
    (rw / "theirs").chmod(0o640)
    (rw / "link").symlink_to("file")
    script = (
        "cd /mnt/rw; busybox stat -c %u:%g:%a theirs; cat link; "
        "echo new >new; busybox chown 1234:5678 new; busybox chmod 0751 new; busybox mkdir d; "
        "busybox ln -s nowhere l; busybox ln new other; echo more >>theirs; busybox mv file moved"
    )
    async with Guest(backend, plan) as guest:
        assert await guest.run(script) == "1000:65534:640\nrw\n"
    new = (rw / "new").stat()
    assert (new.st_uid, new.st_gid, stat.S_IMODE(new.st_mode)) == (1234, 5678, 0o751)
    assert new.st_nlink == 2
    assert (rw / "d").stat().st_uid == 0
    assert os.readlink(rw / "l") == "nowhere"
    assert (rw / "theirs").read_text() == "xmore\n"
    assert (rw / "moved").read_text() == "rw\n"


async def test_users_inside_have_the_rights_of_their_numbers(backend, plan, tmp_path):
    (tmp_path / "rw" / "mine").write_text("mine")
    os.chown(tmp_path / "rw" / "mine", 1000, 1000)
    (tmp_path / "rw" / "mine").chmod(0o600)
    (tmp_path / "rw").chmod(0o755)
    script = (
        "echo a:x:1000:1000::/: >>/etc/passwd; echo b:x:1001:1001::/: >>/etc/passwd; "
        'for u in a b; do as="busybox start-stop-daemon -S -c $u -x"; '
        "$as /bin/cat -- /mnt/rw/mine; $as /bin/touch -- /mnt/rw/new; done"
    )
    async with Guest(backend, plan) as guest:
        said = await guest.run(script)
    assert said.count("mine") - said.count("/mine") == 1, said
    assert said.count("ermission denied") == 3, said
    assert sorted(listing(tmp_path / "rw")) == ["file", "mine"]


async def test_root_inside_leaves_nothing_dangerous(backend, plan, tmp_path):
    script = (
        "cd /mnt/rw; busybox cp /bin/busybox p; busybox chown 0:0 p; busybox chmod 4755 p; "
        "busybox chmod 2755 p; busybox mkfifo fifo; busybox mknod disk b 254 0; "
        "busybox mknod null c 1 3; busybox mkdir d; busybox chmod 4777 d; "
        "busybox cp /bin/busybox d/q; busybox chmod 6755 d/q; busybox chown 1000:8 d/q; "
        "busybox chmod g+s d/q; busybox ls -l . d"
    )
    async with Guest(backend, plan) as guest:
        said = await guest.run(script)
    assert said.count("not permitted") >= 6, said
    found = listing(tmp_path / "rw")
    assert set(found) == {"file", "p", "d", "d/q"}
    for path in (tmp_path / "rw").rglob("*"):
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), found


async def test_what_is_read_only_stays_so_whatever_root_inside_does(backend, plan, tmp_path):
    ro, before = tmp_path / "ro", os.stat(tmp_path / "ro" / "file")
    script = (
        "busybox mount -o remount,bind,rw /mnt/ro && echo remounted; "
        "busybox umount /mnt/ro; busybox umount /mnt/rw; busybox mkdir /all; "
        "busybox mount -t 9p -o trans=virtio,version=9p2000.L,cache=none tupper-shares /all && "
        "echo again; cd /all; cat 0/file; echo x >>0/file; echo x >0/new; busybox rm 0/file; "
        "busybox mv 0/file 1/file; busybox mv 1/file 0/other; busybox ln 0/file 1/linked; "
        "busybox ln 1/file 0/linked; busybox chmod 777 0/file; busybox touch -d @0 0/file; "
        "busybox chown 1 0/file; busybox truncate -s 0 0/file; busybox mkdir 0/d; "
        "busybox mount -o bind 1 0 && echo x >new; echo x >top; busybox mkdir 2; busybox rmdir 0; "
        "busybox rm -rf 0; cat ../etc/passwd ../../etc/passwd 0/../../etc/passwd"
    )
    async with Guest(backend, plan) as guest:
        said = await guest.run(script)
    assert "remounted" in said
    assert "again" in said
    assert said.count("ead-only file system") >= 9, said
    assert listing(ro) == {"file": stat.filemode(before.st_mode)}
    after = os.stat(ro / "file")
    assert (ro / "file").read_text() == "ro\n"
    assert (after.st_nlink, after.st_mtime_ns, after.st_uid) == (1, before.st_mtime_ns, 0)
    assert "linked" not in listing(tmp_path / "rw")


async def test_links_lead_nowhere_on_the_host(backend, plan, tmp_path):
    rw, outside = tmp_path / "rw", tmp_path / "outside"
    (rw / "here").mkdir()
    (rw / "here" / "file").write_text("here\n")
    (rw / "absolute").symlink_to(outside)
    (rw / "upwards").symlink_to("../outside")
    waits = "cd /mnt/rw/here; cat file; echo x >../inside; until test -e ../go; do busybox sleep 0.1; done;"
    async with Guest(backend, plan) as guest:
        said = await guest.run(
            f"cd /mnt/rw; cat absolute/file upwards/file; echo x >upwards/new; ls {outside};"
            f"busybox ln -s {outside}/file l; cat l; echo x >l; busybox ln l hard; cat hard"
        )
        # The guest's kernel knows the directory by its name, which is another thing by then.
        script = f"{waits} cat file; echo x >new; busybox rm file; cat ../here/file"
        reading = asyncio.create_task(guest.run(script))
        await until((rw / "inside").exists, "the guest is not in the directory")
        (rw / "here").rename(rw / "moved")
        (rw / "here").symlink_to(outside)
        (rw / "go").write_text("")
        said += await reading
    assert SECRET not in said, said
    assert listing(outside) == {"file": "-rw-r--r--"}
    assert (outside / "file").read_text() == SECRET


async def test_a_directory_that_swaps_with_a_link_all_the_time(backend, plan, tmp_path):
    outside = tmp_path / "outside"
    (tmp_path / "rw" / "d").mkdir()
    (tmp_path / "rw" / "d" / "file").write_text("inside\n")
    script = (
        f"cd /mnt/rw; busybox ln -s {outside} s; "
        "(i=0; while test $i -lt 60; do busybox mv d t; busybox mv s d; busybox mv d s; "
        "busybox mv t d; i=$((i+1)); done) & "
        "i=0; while test $i -lt 60; do cat d/file; echo x >>d/file; i=$((i+1)); done; wait; echo end"
    )
    async with Guest(backend, plan) as guest:
        said = await guest.run(script)
    assert "end" in said
    assert SECRET not in said
    assert listing(outside) == {"file": "-rw-r--r--"}
    assert (outside / "file").read_text() == SECRET


async def test_host_and_guest_see_each_others_changes(backend, plan, tmp_path):
    file = tmp_path / "rw" / "file"
    async with Guest(backend, plan) as guest:
        for text in ("one\n", "another\n"):
            file.write_text(text)
            assert await guest.run("cat /mnt/rw/file") == text
        fresh = tmp_path / "rw" / "fresh"
        fresh.write_text("third\n")
        fresh.replace(file)
        assert await guest.run("cat /mnt/rw/file; ls /mnt/rw") == "third\nfile\n"
        file.unlink()
        assert await guest.run("ls /mnt/rw; echo x >/mnt/rw/back") == ""
        assert (tmp_path / "rw" / "back").read_text() == "x\n"


async def test_place_that_a_link_of_the_image_leads_to(backend, plan, tmp_path):
    mounts = (Mount(tmp_path / "rw", "/srv/link/deeper"),)
    async with Guest(backend, replace(plan, mounts=mounts)) as guest:
        assert await guest.run("cat /data/there/deeper/file") == "rw\n"


async def test_qemu_has_no_rights_but_for_the_directories(backend, plan):
    async with Guest(backend, plan) as guest:
        status = Path(f"/proc/{guest.machine.record.pid}/status").read_text()
        facts = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
        mine = os.readlink("/proc/self/ns/user")
        assert os.readlink(f"/proc/{guest.machine.record.pid}/ns/user") != mine
    assert int(facts["Uid"][0]) >= 0x70000000
    assert len(set(facts["Uid"])) == 1
    assert facts["Groups"] == []
    assert int(facts["CapBnd"][0], 16) == 0b1011  # chown, dac_override, fowner
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == (["1"], ["2"])


async def test_snapshots_of_and_with_mounts_are_refused(backend, plan, tmp_path):
    async with Guest(backend, plan) as guest:
        with pytest.raises(Unsupported, match="mounts"):
            await guest.save(tmp_path / "saved")
        assert await guest.run("cat /mnt/rw/file") == "rw\n"
    snapshot = Snapshot(tmp_path, "qemu", (await backend.probe()).version)
    with pytest.raises(Unsupported, match="mounts"):
        await backend.restore(snapshot, plan)
    await assert_nothing_left(plan)


async def test_directories_that_cannot_be_shown(backend, plan, tmp_path):
    (tmp_path / "swapped").symlink_to(tmp_path / "outside")
    for path, kind in (
        ("/proc/sys", Unsupported),
        (tmp_path / "swapped", NotFound),
        (tmp_path / "swapped" / "file", NotFound),
    ):
        with pytest.raises(kind, match="/mnt/x"):
            await backend.start(replace(plan, mounts=(Mount(Path(path), "/mnt/x"),)))
        await assert_nothing_left(plan)


def run_behind(shared, script, *numbers):
    """What a shell says where QEMU would be."""
    try:
        done = subprocess.run(
            [*shared.prefix, "sh", "-c", script], capture_output=True, text=True, timeout=30,
            pass_fds=(shared.place, *shared.numbers, *numbers), check=False,
        )  # fmt: skip
    finally:
        for number in (shared.place, *shared.numbers):
            os.close(number)
    return done.stdout + done.stderr


@pytest.mark.parametrize("gid", [0, GROUP])
def test_the_group_of_a_device_opens_that_and_owns_nothing_in_a_mount(tmp_path, gid):
    device, rw = tmp_path / "device", tmp_path / "rw"
    device.write_text("opened")
    os.chown(device, 0, GROUP)
    device.chmod(0o060)
    rw.mkdir()
    (rw / "program").write_text("x")
    os.chown(rw / "program", 0, GROUP)
    number = os.open(device, os.O_PATH)
    shared = share([Mount(rw, "/mnt/rw")], tmp_path / "base", 0x70001234, gid=gid)
    script = f"cat /proc/self/fd/{number}; cd /proc/self/fd/{shared.place}/0; chmod 2755 program"
    try:
        said = run_behind(shared, script, number)
    finally:
        os.close(number)
    assert said == "opened" if gid else "ermission denied" in said, said
    assert stat.filemode((rw / "program").stat().st_mode) == "-rwxr-xr-x"


async def test_where_the_probe_has_shown_none_they_are_refused(plan):
    backend = make_backend()
    found = await backend._prober.find()
    probe = replace(
        found.probe,
        capabilities=found.probe.capabilities - {Capability.MOUNTS},
        details={**found.probe.details, "mounts": "no such file system"},
    )
    backend._prober._found = replace(found, probe=probe)
    assert plan.mounts
    with pytest.raises(Unsupported, match="no such file system"):
        await backend.start(plan)
    await assert_nothing_left(plan)


def test_what_the_host_mounts_later_is_not_seen(tmp_path):
    rw = tmp_path / "rw"
    (rw / "below").mkdir(parents=True)
    kernel.bind(rw, rw)
    try:
        kernel.mount("none", rw, flags=MS_SHARED)
        shared = share([Mount(rw, "/mnt/rw", read_only=True)], tmp_path / "base", 0x70001234)
        kernel.mount("later", rw / "below", "tmpfs")
        try:
            (rw / "below" / "secret").write_text(SECRET)
            said = run_behind(shared, f"cd /proc/self/fd/{shared.place}/0 && ls below && echo end")
        finally:
            kernel.unmount(rw / "below")
    finally:
        kernel.unmount(rw)
    assert said == "end\n"
