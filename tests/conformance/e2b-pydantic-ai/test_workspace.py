"""Pydantic AI's suite for workspaces, on its backend for E2B, with ``tupper serve`` as E2B."""

import pytest
from e2b import Sandbox
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_harness.e2b_sandbox import E2BSandbox, E2BSandboxBackend


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def made(e2b_server):
    with Sandbox.create(timeout=1800) as sandbox:
        yield sandbox


class TestE2BBackend(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, made):
        return E2BSandboxBackend(ref=WorkspaceRef(provider="e2b", id=made.sandbox_id))

    @pytest.fixture
    def fresh_backend(self, e2b_server):
        built = []

        def build():
            built.append(E2BSandboxBackend())
            return built[-1]

        yield build
        for backend in built:
            if backend.ref is not None:
                Sandbox.kill(backend.ref.id)

    @pytest.fixture
    def attach_backend(self):
        return lambda ref: E2BSandboxBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            await E2BSandbox().destroy(backend.ref)

        return destroy
