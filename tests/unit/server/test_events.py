"""What happens to sandboxes, over the wire and through both halves of the SDK."""

import asyncio
import contextlib
import json

import pytest

from tupper import (
    AsyncSandbox,
    Sandbox,
    SandboxEventType,
    SandboxNotFoundException,
    UnavailableException,
)
from tupper.protocol.sse import Decoder
from tupper.sdk._async import events as following
from unit.server.serving import create, new_key, remote_client


@contextlib.asynccontextmanager
async def listening(http, place="", **query):
    """Gives a call that returns the next event."""
    headers = {"Last-Event-ID": place} if place else {}
    decoder, ready = Decoder(), []
    async with http.stream("GET", "/tupper/v1/events", params=query, headers=headers) as told:
        assert told.status_code == 200
        assert told.headers["content-type"].startswith("text/event-stream")
        pieces = told.aiter_raw()

        async def following():
            while not ready:
                ready.extend(decoder.feed(await anext(pieces)))
            return json.loads(ready.pop(0).data)

        while not decoder.place:
            ready.extend(decoder.feed(await anext(pieces)))
        yield following, decoder


async def test_a_life_is_told(http):
    async with listening(http) as (event, _):
        made = await create(http, metadata={"a": "b"}, tupper={"name": "n"})
        created = await event()
        assert created.pop("timestamp")
        assert created == {
            "type": "created",
            "sandboxID": made["sandboxID"],
            "name": "n",
            "templateID": "base",
            "image": None,
            "metadata": {"a": "b"},
        }
        await http.delete("/sandboxes/n")
        ended = await event()
        assert (ended["type"], ended["reason"]) == ("ended", "killed")
        assert ended["detail"]


async def test_only_what_was_asked_for(http):
    one, two = [await create(http, metadata={"k": str(k)}) for k in range(2)]
    for query in ({"sandbox": two["sandboxID"][:12]}, {"metadata": "k=1"}, {"type": "ended"}):
        async with listening(http, **query) as (event, _):
            third = await create(http, metadata={"k": "0"})
            last = two if "type" not in query else third
            await http.delete(f"/sandboxes/{last['sandboxID']}")
            found = await event()
            assert (found["type"], found["sandboxID"]) == ("ended", last["sandboxID"])
            if last is two:
                two = await create(http, metadata={"k": "1"})
    assert one


async def test_what_cannot_be_followed_is_refused(http):
    for query, status in (({"sandbox": "nobody"}, 404), ({"type": "born"}, 400)):
        answer = await http.get("/tupper/v1/events", params=query)
        assert answer.status_code == status


async def test_a_key_hears_of_its_own_alone(world, http, remote):
    async with remote_client(world, await new_key(http)) as other:
        theirs = await create(other)
        answer = await remote.get("/tupper/v1/events", params={"sandbox": theirs["sandboxID"]})
        assert answer.status_code == 404
        async with listening(remote) as (event, _):
            await other.delete(f"/sandboxes/{theirs['sandboxID']}")
            mine = await create(remote)
            assert (await event())["sandboxID"] == mine["sandboxID"]


async def test_who_comes_back_missed_nothing(http):
    async with listening(http) as (_, decoder):
        place = decoder.place
    made = await create(http)
    async with listening(http, place) as (event, _):
        assert (await event())["sandboxID"] == made["sandboxID"]
    async with listening(http, "another-1") as (event, _):
        assert (await event())["type"] == "lost"
        assert (await event())["sandboxID"] == made["sandboxID"]


async def test_listeners_do_not_hold_a_server_that_leaves(world, http):
    async with http.stream("GET", "/tupper/v1/events") as told:
        world.engine.events.close()
        async for _ in told.aiter_raw():
            pass


# Through the SDK.


async def test_the_async_half(world):
    url = f"unix:{world.paths.socket}"
    async with await AsyncSandbox.events(api_url=url) as events:
        box = await AsyncSandbox.create(name="n", metadata={"a": "b"}, api_url=url)
        await box.kill()
        created, ended = await anext(events), await anext(events)
        await box.close()
    assert (created.type, created.sandbox_id) == (SandboxEventType.CREATED, box.sandbox_id)
    assert (created.name, created.template_id, created.metadata) == ("n", "base", {"a": "b"})
    assert (created.reason, created.timestamp.tzinfo is not None) == (None, True)
    assert (ended.type, ended.reason) == (SandboxEventType.ENDED, "killed")
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_the_sync_half(world):
    url = f"unix:{world.paths.socket}"

    def work():
        with Sandbox.events(types=["ended"], api_url=url) as events:
            box = Sandbox.create(api_url=url)
            box.kill()
            box.close()
            return box.sandbox_id, next(events)

    sandbox_id, event = await asyncio.to_thread(work)
    assert (event.sandbox_id, event.type.value) == (sandbox_id, "ended")


async def test_a_sandbox_that_is_not_there(world):
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.events("nobody", api_url=f"unix:{world.paths.socket}")


async def test_a_broken_connection_is_made_again(world, http):
    async with await AsyncSandbox.events(api_url=f"unix:{world.paths.socket}") as events:
        await events._hang_up()
        made = await create(http)
        assert (await anext(events)).sandbox_id == made["sandboxID"]


async def test_a_server_that_is_gone_is_an_error_in_the_end(world, tmp_path, monkeypatch):
    monkeypatch.setattr(following, "_PAUSE_S", 0.0)
    events = await AsyncSandbox.events(api_url=f"unix:{world.paths.socket}")
    world.paths.socket.rename(tmp_path / "elsewhere")
    try:
        await events._hang_up()
        with pytest.raises(UnavailableException, match="cannot follow events"):
            await anext(events)
    finally:
        (tmp_path / "elsewhere").rename(world.paths.socket)
    with pytest.raises(StopAsyncIteration):
        await anext(events)
