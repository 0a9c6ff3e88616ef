"""The hardware tier is found, chosen first, and refused with a reason and a remedy."""

import asyncio
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from nested.world import DEVICE, KVM_GROUP, device_with
from qemu_guest import make_backend
from tupper.backends.qemu import kvm
from tupper.core.backend import Isolation
from tupper.core.errors import BackendUnavailable
from tupper.core.select import choose

_USER = 54987


@pytest.fixture(scope="module")
def found():
    """What the command says of qemu."""
    argv = [sys.executable, "-m", "tupper", "doctor", "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=300, check=False)
    return next(one for one in json.loads(done.stdout) if one["backend"] == "qemu")


def test_doctor_names_the_hardware_tier(found):
    assert found["usable"] is True
    assert (found["isolation"], found["mechanism"]) == ("hardware-vm", "QEMU KVM")
    assert (found["reason"], found["remedy"]) == ("", "")


async def test_it_is_chosen_before_all_weaker_ones():
    ours = await make_backend().probe()
    weaker = replace(ours, backend="gvisor", isolation=Isolation.USER_KERNEL)
    assert choose([weaker, ours]).backend == "qemu"
    assert choose([weaker, ours], min_isolation=Isolation.HARDWARE_VM).backend == "qemu"
    with pytest.raises(BackendUnavailable, match="hardware-vm"):
        choose([weaker], min_isolation=Isolation.HARDWARE_VM)


async def test_it_runs_some_instructions():
    assert await kvm.why_not() is None


async def test_only_root_may_open_it():
    """QEMU does not run as root, so this is of no use."""
    with device_with(0o600, 0):
        probe = await make_backend().probe()
    assert not probe.usable
    assert "only root can open /dev/kvm" in probe.reason
    assert probe.remedy == "chgrp kvm /dev/kvm && chmod 660 /dev/kvm"


def as_user(*groups):
    """What an ordinary user is told, in a child of ours: a new Python would take seconds here."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if child == 0:
        said = "the child failed"
        try:
            os.setgroups(groups)
            os.setresgid(_USER, _USER, _USER)
            os.setresuid(_USER, _USER, _USER)
            found = asyncio.run(kvm.why_not())
            said = f"{found.reason}|{found.remedy}" if found else "fine"
        finally:
            os.write(theirs, said.encode())
            os._exit(0)
    os.close(theirs)
    with open(ours) as heard:
        said = heard.read()
    os.waitpid(child, 0)
    return said


def test_permission_denied_has_a_remedy():
    reason, remedy = as_user().split("|")
    assert reason == f"cannot open {DEVICE}: permission denied"
    assert remedy.startswith("sudo usermod -aG ")
    with device_with(0o600, 0):
        assert "chgrp kvm" in as_user().split("|")[1]


def test_a_member_of_the_group_may():
    assert as_user(KVM_GROUP) == "fine"


def test_what_the_machine_has():
    """What other backends need in such a machine, too."""
    assert "svm" in Path("/proc/cpuinfo").read_text().split()
    for name in ("vhost-vsock", "net/tun"):
        os.close(os.open(f"/dev/{name}", os.O_RDWR))
