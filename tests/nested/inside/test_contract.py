"""What every backend must do, by QEMU with KVM."""

import pytest

from backend_parts import make_plan, remove, temporary
from qemu_guest import make_backend, make_root
from tupper.testing.contract import BackendContract

PLACE = {}


@pytest.fixture(scope="module", autouse=True)
def root_filesystem():
    PLACE["top"] = temporary("tr-")
    PLACE["root"] = make_root(PLACE["top"])
    yield
    remove(PLACE["top"])


class TestQemuWithKvm(BackendContract):
    def make_backend(self, data_dir):
        return make_backend()

    def make_plan(self, directory, sandbox_id):
        return make_plan(directory, sandbox_id, PLACE["root"].path, rootfs=PLACE["root"])
