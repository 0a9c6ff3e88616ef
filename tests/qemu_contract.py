"""What every backend must do, by QEMU; the subclasses say as whom and on what."""

import pytest

from backend_parts import make_plan, remove, temporary
from qemu_guest import make_backend, make_root
from tupper.testing.contract import BackendContract


class QemuContract(BackendContract):
    """The suite. All its tests have one root filesystem: ``root``, below ``top``."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def root_filesystem(cls):
        cls.top = temporary("tr-")
        cls.root = make_root(cls.top)
        yield
        remove(cls.top)

    def make_backend(self, data_dir):
        return make_backend()

    def make_plan(self, directory, sandbox_id):
        return make_plan(directory, sandbox_id, self.root.path, rootfs=self.root)
