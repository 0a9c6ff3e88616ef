"""Inspect AI's checks of a sandbox environment, on one that its registry finds."""

import asyncio

import pytest
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 - as its documentation says


@pytest.fixture(scope="module")
def environment():
    found = registry_find_sandboxenv("tupper")
    made = asyncio.run(found.sample_init("self_check", None, {}))
    yield made["default"]
    asyncio.run(found.sample_cleanup("self_check", None, made, False))


@pytest.fixture
async def sandbox_env(environment):
    return environment
