"""A lab for each test, and the skip where namespaces cannot be made."""

import os
import secrets
import shutil
from pathlib import Path

import pytest

from integration.network import lab as labs
from tupper.network import namespaces
from tupper.network.forwarding import Forwarding

_MISSING = [program for program in ("ip", "nft") if not shutil.which(program)]


def pytest_collection_modifyitems(items):
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here) and "as_root" not in item.keywords:
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))
            elif _MISSING:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {_MISSING}"))


@pytest.fixture
def engine_id():
    return "z" + secrets.token_hex(2)


@pytest.fixture
def lab(monkeypatch):
    with labs.Lab() as lab:
        monkeypatch.setattr(namespaces, "find_resolvers", lambda: lab.resolvers)
        yield lab


@pytest.fixture
def make_network(lab, engine_id, tmp_path):
    """Makes the network of an engine; another name makes another engine on the same host."""

    def make(name=None):
        directory = tmp_path / (name or engine_id)
        directory.mkdir(exist_ok=True)
        return namespaces.Namespaces(
            name or engine_id, directory, forwarding=Forwarding(tmp_path / "run")
        )

    return make


@pytest.fixture
async def network(make_network):
    network = make_network()
    yield network
    await network.sweep([])


@pytest.fixture
def inside(lab):
    """The namespace of an attachment, as a descriptor that the lab closes."""
    return lambda attachment: lab.close_later(labs.named(attachment.netns))
