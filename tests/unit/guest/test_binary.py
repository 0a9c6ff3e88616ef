"""Finding the agent for a processor."""

import hashlib

import pytest

from tupper.core.errors import NotFound
from tupper.guest import agent_digest, find_agent_binary


@pytest.mark.parametrize(
    ("arch", "name"), [("x86_64", "amd64"), ("AMD64", "amd64"), ("aarch64", "arm64")]
)
def test_names_of_processors(tmp_path, arch, name):
    path = tmp_path / f"tupper-agent-linux-{name}"
    path.write_bytes(b"elf")
    assert find_agent_binary(arch, directory=tmp_path) == path
    assert agent_digest(path) == "sha256:" + hashlib.sha256(b"elf").hexdigest()


def test_a_new_build_has_a_new_digest(tmp_path):
    path = tmp_path / "agent"
    path.write_bytes(b"one")
    before = agent_digest(path)
    path.write_bytes(b"other")
    assert agent_digest(path) != before


def test_a_missing_agent_is_named(tmp_path):
    with pytest.raises(NotFound, match="tupper-agent-linux-amd64"):
        find_agent_binary("x86_64", directory=tmp_path)
    with pytest.raises(NotFound, match="riscv64"):
        find_agent_binary("riscv64", directory=tmp_path)
