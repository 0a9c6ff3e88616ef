"""The contract suite on QEMU, to be run as an ordinary user; ``test_user.py`` does."""

import os
import stat
from pathlib import Path

import pytest

from qemu_contract import QemuContract
from qemu_guest import Guest, make_backend, plan_for
from tupper.core.backend import Mount
from tupper.core.errors import NotFound
from tupper.testing.contract import assert_nothing_left


class TestQemuAsUser(QemuContract):
    async def test_directories_have_the_users_rights_and_no_more(self, tmp_path):
        backend = make_backend()
        home, closed = tmp_path / "home", tmp_path / "home" / "closed"
        closed.mkdir(parents=True)
        (home / "file").write_text("mine")
        (home / "out").symlink_to("/etc/passwd")
        plan = plan_for(self.top, self.root, mounts=(Mount(home, "/mnt/home"),))
        script = (
            "cd /mnt/home; busybox stat -c %u:%g file; echo new >new; busybox chown 1000:1000 new; "
            "busybox cp /bin/busybox p; busybox chmod 4755 p; busybox mkfifo fifo; "
            "busybox mknod null c 1 3; busybox grep -c ^tupperuser: out"
        )
        async with Guest(backend, plan) as guest:
            said = await guest.run(script)
            status = Path(f"/proc/{guest.machine.record.pid}/status").read_text()
        assert said.startswith("0:"), said
        assert said.count("not permitted") == 3, said
        assert said.endswith("\n0\n"), said
        assert (home / "new").stat().st_uid == 5000000 + 999
        assert stat.filemode((home / "p").stat().st_mode) == "-rwxr-xr-x"
        assert not {"fifo", "null"} & {path.name for path in home.iterdir()}
        facts = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
        assert set(facts["Uid"]) == {str(os.getuid())}
        # CHOWN, DAC_OVERRIDE and FOWNER; NET_ADMIN
        assert int(facts["CapBnd"][0], 16) == 0b1011 | 1 << 12
        assert (facts["NoNewPrivs"], facts["Seccomp"]) == (["1"], ["2"])

    async def test_directories_that_cannot_be_shown(self, tmp_path):
        for path in (tmp_path / "gone", Path("/proc/self/root")):
            plan = plan_for(self.top, self.root, mounts=(Mount(path, "/mnt/x"),))
            with pytest.raises(NotFound, match="/mnt/x"):
                await make_backend().start(plan)
            await assert_nothing_left(plan)
