"""Pydantic AI's suite for workspaces, with everything that it can ask for."""

import pytest
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from tupper import Sandbox
from tupper.integrations.pydantic_ai import TupperWorkspace, TupperWorkspaceBackend


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def made():
    with Sandbox.create(timeout=1800) as sandbox:
        yield sandbox


class TestTupperWorkspaceBackend(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, made):
        return TupperWorkspaceBackend(ref=WorkspaceRef(provider="tupper", id=made.sandbox_id))

    @pytest.fixture
    def fresh_backend(self):
        built = []

        def build():
            built.append(TupperWorkspaceBackend())
            return built[-1]

        yield build
        for backend in built:
            if backend.ref is not None:
                Sandbox.kill(backend.ref.id)

    @pytest.fixture
    def attach_backend(self):
        return lambda ref: TupperWorkspaceBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            await TupperWorkspace().destroy(backend.ref)

        return destroy
