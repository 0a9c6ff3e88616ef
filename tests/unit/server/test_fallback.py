"""E2B's cloud in the place of this host: only where no backend can be used, and only by name.

Both are control planes with doubles for machines; one of them plays the cloud, over TCP.
"""

import dataclasses

import pytest

from integration.engine.world import PROBE, InProcess, World
from tupper import (
    AsyncSandbox,
    AuthenticationException,
    InvalidArgumentException,
    SandboxQuery,
    UnavailableException,
    UnsupportedException,
)
from tupper.core.errors import BackendUnavailable
from unit.server.serving import new_key, serving


class Refusing(World):
    """A host that says what it says about its backend."""

    probe = dataclasses.replace(PROBE, usable=False, reason="no such device", isolation=None)

    def find_parts(self, paths, settings, engine_id):
        def choose(probes, wanted, least):
            raise BackendUnavailable("no backend can be used on this host: double: no such device")

        parts = super().find_parts(paths, settings, engine_id)
        return dataclasses.replace(parts, choose=choose)


class Broken(InProcess):
    async def probe(self):
        return Refusing.probe


@pytest.fixture
async def cloud(http, world, monkeypatch):
    monkeypatch.setenv("E2B_API_URL", world.tcp)
    monkeypatch.setenv("E2B_API_KEY", await new_key(http))
    return world


@pytest.fixture
def notices(caplog):
    caplog.set_level("WARNING", "tupper")
    return lambda: [r.getMessage() for r in caplog.records if "E2B's cloud" in r.getMessage()]


async def test_without_a_backend_a_sandbox_goes_where_it_may(cloud, tmp_path, notices):
    host = Refusing(tmp_path / "here", Broken())
    async with serving(host):
        url = f"unix:{host.paths.socket}"
        box = await AsyncSandbox.create(metadata={"a": "b"}, fallback=["e2b"], api_url=url)
        info = await box.get_info()
        listed = await AsyncSandbox.list(api_url="e2b:").next_items()
        assert host.engine.count == 0
        await box.kill()
    assert (info.backend, info.isolation, info.kernel) == ("e2b", "", "")
    assert cloud.tcp.removeprefix("http://") in info.mechanism
    assert "no such device" in info.fallback_reason
    assert info.metadata == {"a": "b"}
    assert [(i.sandbox_id, i.fallback_reason) for i in listed] == [
        (box.sandbox_id, info.fallback_reason)
    ]
    assert len(notices()) == 1


async def test_without_the_name_there_is_no_other_place(cloud, tmp_path, notices):
    host = Refusing(tmp_path / "here", Broken())
    async with serving(host):
        with pytest.raises(UnavailableException, match="no such device"):
            await AsyncSandbox.create(api_url=f"unix:{host.paths.socket}")
    assert cloud.engine.count == 0
    assert notices() == []


async def test_a_backend_that_is_refused_while_another_works_is_no_reason(cloud, tmp_path):
    host = Refusing(tmp_path / "here", InProcess())
    async with serving(host):
        with pytest.raises(UnavailableException, match="no such device"):
            await AsyncSandbox.create(fallback=["e2b"], api_url=f"unix:{host.paths.socket}")
    assert cloud.engine.count == 0


async def test_a_server_that_is_not_there_is_no_reason(cloud, tmp_path):
    with pytest.raises(UnavailableException, match="cannot talk"):
        await AsyncSandbox.create(fallback=["e2b"], api_url=f"unix:{tmp_path}/none")
    assert cloud.engine.count == 0


async def test_a_host_that_works_is_used(cloud, tmp_path, notices):
    host = World(tmp_path / "here", InProcess())
    async with serving(host):
        url = f"unix:{host.paths.socket}"
        box = await AsyncSandbox.create(fallback=["e2b"], api_url=url)
        assert (await box.get_info()).fallback_reason is None
        await box.kill()
    assert cloud.engine.count == 0
    assert notices() == []


async def test_by_name_it_goes_there_at_once(cloud, notices):
    box = await AsyncSandbox.create(backend="e2b", timeout=77, envs={"A": "b"})
    assert [s.id for s in cloud.engine.running()] == [box.sandbox_id]
    info = await box.get_info()
    assert (info.backend, info.fallback_reason, info.name) == ("e2b", None, None)
    assert await AsyncSandbox.kill(box.sandbox_id, api_url="e2b:") is True
    query = SandboxQuery(metadata={"no": "body"})
    assert await AsyncSandbox.list(query, api_url="e2b:").next_items() == []
    assert notices() == []


async def test_the_address_alone_is_enough(cloud, monkeypatch):
    monkeypatch.setenv("TUPPER_URL", "e2b:")
    monkeypatch.setenv("TUPPER_API_KEY", "of-another-server")
    async with await AsyncSandbox.create() as box:
        assert (await AsyncSandbox.connect(box.sandbox_id)).sandbox_id == box.sandbox_id


async def test_what_is_not_there_is_refused_before_anything_is_asked(cloud, monkeypatch):
    with pytest.raises(UnsupportedException, match="memory, ports"):
        await AsyncSandbox.create(backend="e2b", memory="2g", ports=[80])
    with pytest.raises(UnsupportedException, match=r"math\.inf"):
        await AsyncSandbox.create(backend="e2b", timeout=float("inf"))
    with pytest.raises(InvalidArgumentException, match="fallback"):
        await AsyncSandbox.create(fallback=["gvisor"])
    with pytest.raises(UnsupportedException, match="events"):
        await AsyncSandbox.events(api_url="e2b:")
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(AuthenticationException, match="key"):
        await AsyncSandbox.create(backend="e2b")
    assert cloud.engine.count == 0
