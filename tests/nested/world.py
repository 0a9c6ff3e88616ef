"""A plugin of the runs inside the outer machine: a home with the guests' kernel, KVM for QEMU."""

import contextlib
import os
from pathlib import Path

import qemu_guest
from nested.image import INSIDE

DEVICE = Path("/dev/kvm")
# The group that distributions give the device to, by a number that the host's files may not have.
KVM_GROUP = 36
HOME = Path("/tmp/t")


def pytest_configure(config):
    os.environ["TUPPER_HOME"] = str(HOME)
    backend = HOME / "backends" / "qemu"
    backend.mkdir(mode=0o700, parents=True)
    (backend / "kernels").symlink_to(INSIDE / "kernels")
    os.chown(DEVICE, 0, KVM_GROUP)
    DEVICE.chmod(0o660)
    qemu_guest.SETTINGS["accel"] = "kvm"


def pytest_unconfigure(config):
    from tupper.core.paths import find_paths

    if find_paths().address_file.exists():
        from tupper.cli.kill import end_everything

        end_everything()


@contextlib.contextmanager
def device_with(mode, group):
    """``/dev/kvm`` with other permissions, for a block."""
    before = DEVICE.stat()
    os.chown(DEVICE, 0, group)
    DEVICE.chmod(mode)
    try:
        yield
    finally:
        os.chown(DEVICE, 0, before.st_gid)
        DEVICE.chmod(before.st_mode & 0o777)
