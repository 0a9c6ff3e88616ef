"""What every backend must do, done by an ordinary user."""

import subprocess

import pytest

from user_world import temporary_world, why_not

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world():
    if reason := why_not():
        pytest.skip(reason)
    world = temporary_world()
    world.install()
    yield world
    world.remove()
