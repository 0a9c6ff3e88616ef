"""The standard tests of LangChain, on its backend for E2B, with ``tupper serve`` as E2B."""

import pytest
from e2b import AsyncSandbox, Sandbox
from langchain_e2b import AsyncE2BSandbox, E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, e2b_server):
        with Sandbox.create(timeout=1800) as made:
            yield E2BSandbox(sandbox=made)


async def test_the_asynchronous_one(e2b_server):
    made = await AsyncSandbox.create(timeout=600)
    async with made:
        backend = AsyncE2BSandbox(sandbox=made)
        (written,) = await backend.aupload_files([("/tmp/deep/er/x", b"\x00\xff")])
        assert written.error is None
        (read,) = await backend.adownload_files(["/tmp/deep/er/x"])
        assert read.content == b"\x00\xff"
        done = await backend.aexecute("echo out; echo err >&2; exit 3")
        assert (done.exit_code, done.truncated) == (3, False)
        assert "out" in done.output
        assert "err" in done.output
