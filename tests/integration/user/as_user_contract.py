"""The contract suite, to be run as an ordinary user; ``test_user.py`` does."""

import pytest

from backend_parts import host_root, make_plan, remove, shared_data_dir, temporary
from tupper.backends.gvisor import GVisor
from tupper.core.backend import BackendContext, Capability
from tupper.testing.contract import BackendContract

PLACE = {}


@pytest.fixture(scope="module", autouse=True)
def root_filesystem():
    PLACE["top"] = temporary("tr-")
    PLACE["root"] = host_root(PLACE["top"] / "root")
    yield
    remove(PLACE["top"])


class TestGVisorAsUser(BackendContract):
    def make_backend(self, data_dir):
        return GVisor(BackendContext(shared_data_dir(), "t", {}))

    def make_plan(self, directory, sandbox_id):
        return make_plan(directory, sandbox_id, PLACE["root"])

    async def test_limits_that_nobody_holds_are_not_promised(self, backend):
        missing = {Capability.MEMORY_LIMIT, Capability.CPU_LIMIT, Capability.DISK_LIMIT}
        probe = await backend.probe()
        assert not missing & probe.capabilities
        assert "guarded, not limited" in probe.reason
