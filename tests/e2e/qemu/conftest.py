"""Sandboxes of the QEMU backend through the SDK; one sandbox for the whole module."""

import pytest

from tupper import Sandbox

OPTIONS = {"template": "minimal", "backend": "qemu", "timeout": 900, "memory": 256, "disk": 256}


def create(**changes):
    return Sandbox.create(**{**OPTIONS, **changes})


@pytest.fixture(scope="package")
def qemu_works():
    """Skips, with the probe's reason, where there is no QEMU."""
    import asyncio

    from tupper.cli._host import probe_backends

    probe = next(p for p in asyncio.run(probe_backends()) if p.backend == "qemu")
    if not probe.usable:
        pytest.skip(f"qemu: {probe.reason}")
    return probe


@pytest.fixture
def make(qemu_works):
    """Create sandboxes that end with the test."""
    made = []

    def one(**changes):
        made.append(create(**changes))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="module")
def shared(qemu_works):
    with create() as sandbox:
        yield sandbox
