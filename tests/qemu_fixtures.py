"""What tests of QEMU's machines have in common; a ``conftest.py`` takes it over."""

import pytest

from backend_parts import remove, temporary
from qemu_guest import make_backend, make_root


@pytest.fixture(scope="module")
def place():
    top = temporary("tq-")
    yield top
    remove(top)


@pytest.fixture(scope="module")
def rootfs(place):
    return make_root(place)


@pytest.fixture(scope="module")
def backend():
    return make_backend()
