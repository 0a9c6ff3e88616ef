"""A key owns what is made with it; nobody else's key finds it, and this machine's user all."""

import pytest

from unit.server.serving import create, new_key, remote_client


@pytest.fixture
async def two(world, http):
    async with (
        remote_client(world, await new_key(http)) as one,
        remote_client(world, await new_key(http)) as other,
    ):
        yield one, other


async def test_one_key_never_reaches_anothers_sandbox(http, two):
    one, other = two
    made = await create(one, tupper={"name": "n"}, metadata={"a": "b"})
    own = made["sandboxID"]
    for reference in (own, "n", own[:8], f"{own}-client"):
        for method, tail, body in (
            ("GET", "", None),
            ("GET", "?ended=true", None),
            ("GET", "/metrics", None),
            ("GET", "/logs", None),
            ("DELETE", "", None),
            ("POST", "/timeout", {"timeout": 0}),
            ("POST", "/connect", {"timeout": 5}),
            ("POST", "/refreshes", {}),
            ("PUT", "/network", {}),
            ("POST", "/pause", {}),
        ):
            answer = await other.request(method, f"/sandboxes/{reference}{tail}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, 404), (method, tail)
        for path in (f"/v2/sandboxes/{reference}/connect", f"/v2/sandboxes/{reference}%2Fconnect"):
            assert (await other.post(path, json={})).status_code == 404
        answer = await other.get(f"/tupper/v1/sandboxes/{reference}/log")
        assert answer.status_code == 404
    for path in ("/sandboxes", "/v2/sandboxes"):
        answer = await other.get(path)
        assert (answer.json(), answer.headers["X-Total-Running"]) == ([], "0")
        assert [s["sandboxID"] for s in (await one.get(path)).json()] == [own]
        assert [s["sandboxID"] for s in (await http.get(path)).json()] == [own]
    asked = {"sandbox_ids": own}
    assert (await other.get("/sandboxes/metrics", params=asked)).json() == {"sandboxes": {}}
    assert own in (await one.get("/sandboxes/metrics", params=asked)).json()["sandboxes"]
    assert (await one.get("/sandboxes/n")).json()["sandboxID"] == own


async def test_names_are_each_keys_own(http, two):
    one, other = two
    mine, theirs = (
        await create(one, tupper={"name": "n"}),
        await create(other, tupper={"name": "n"}),
    )
    again = await one.post("/v2/sandboxes", json={"tupper": {"name": "n"}})
    assert again.status_code == 409
    assert (await one.get("/sandboxes/n")).json()["sandboxID"] == mine["sandboxID"]
    assert (await other.delete("/sandboxes/n")).status_code == 204
    assert (await one.get("/sandboxes/n")).json()["sandboxID"] == mine["sandboxID"]
    await one.delete("/sandboxes/n")
    for client, own in ((one, mine), (other, theirs)):
        ended = (await client.get("/sandboxes/n", params={"ended": "true"})).json()
        assert ended["sandboxID"] == own["sandboxID"]
    listed = (await one.get("/v2/sandboxes?state=ended")).json()
    assert [s["sandboxID"] for s in listed] == [mine["sandboxID"]]
    assert (await http.get("/sandboxes/n?ended=true")).status_code == 200


async def test_sandboxes_of_this_machines_user_belong_to_no_key(http, two):
    made = await create(http, tupper={"name": "mine"})
    for reference in (made["sandboxID"], "mine"):
        assert (await two[0].delete(f"/sandboxes/{reference}")).status_code == 404
    assert (await http.get("/sandboxes/mine")).status_code == 200


async def test_idempotency_keys_are_each_keys_own(two):
    headers = {"Idempotency-Key": "k"}
    made = [(await one.post("/v2/sandboxes", json={}, headers=headers)).json() for one in two]
    assert made[0]["sandboxID"] != made[1]["sandboxID"]


async def test_a_key_may_come_as_a_bearer_token(world, http):
    key = await new_key(http)
    async with remote_client(world, "") as nobody:
        del nobody.headers["x-api-key"]
        for given, status in ((f"Bearer {key}", 200), (f"bearer  {key}", 200), ("Bearer x", 401)):
            answer = await nobody.get("/v2/sandboxes", headers={"Authorization": given})
            assert answer.status_code == status, given
        two_keys = {"Authorization": f"Bearer {key}", "X-API-KEY": "e2b_00"}
        assert (await nobody.get("/v2/sandboxes", headers=two_keys)).status_code == 401
