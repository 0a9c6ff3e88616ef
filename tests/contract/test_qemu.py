from typing import ClassVar

import pytest

from backend_parts import host_root, make_plan, remove, shared_data_dir, temporary
from tupper.backends.qemu import Qemu
from tupper.core.backend import BackendContext
from tupper.testing.contract import BackendContract

PLACE = {}


@pytest.fixture(scope="module", autouse=True)
def root_filesystem():
    PLACE["top"] = temporary("tr-")
    PLACE["root"] = host_root(PLACE["top"] / "root")
    yield
    remove(PLACE["top"])


class TestQemu(BackendContract):
    pytestmark: ClassVar = [*BackendContract.pytestmark, pytest.mark.root]

    def make_backend(self, data_dir):
        return Qemu(BackendContext(shared_data_dir(), "t", {"accel": "tcg"}))

    def make_plan(self, directory, sandbox_id):
        return make_plan(directory, sandbox_id, PLACE["root"])
