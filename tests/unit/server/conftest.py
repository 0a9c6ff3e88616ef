"""Fixtures of the control plane's tests."""

import httpx2
import pytest

from integration.engine.world import InProcess, World
from unit.server.serving import new_key, remote_client, serving


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path, InProcess())
    async with serving(world):
        yield world


@pytest.fixture
async def http(world):
    transport = httpx2.AsyncHTTPTransport(uds=str(world.paths.socket))
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://tupper", timeout=10
    ) as client:
        yield client


@pytest.fixture
async def remote(world, http):
    async with remote_client(world, await new_key(http)) as client:
        yield client
