"""Private ports, hosts that are masked, and ports that speak TLS."""

import pytest

from unit.server.serving import create, edge

PRIVATE = {"allowPublicTraffic": False, "maskRequestHost": "inside.example:${PORT}"}


async def test_private_ports_ask_for_the_token(remote):
    made = await create(remote, network=PRIVATE)
    token = made["trafficAccessToken"]
    assert token
    got = (await remote.get(f"/sandboxes/{made['sandboxID']}")).json()
    assert got["network"] == PRIVATE
    for given in ({}, {"e2b-traffic-access-token": "x"}, {"E2B-Traffic-Access-Token": token + "x"}):
        answer = await remote.get("/x", headers=edge(made, 8000) | given)
        assert (answer.status_code, answer.json()["code"]) == (403, 403)
        assert answer.json()["sandboxId"] == made["sandboxID"]
    good = {"E2B-Traffic-Access-Token": token}
    answer = await remote.get("/x", headers=edge(made, 8000) | good)
    seen = answer.json()["headers"]
    assert seen["host"] == "inside.example:8000"
    assert "e2b-traffic-access-token" not in seen
    twice = [*(edge(made, 8000) | good).items(), ("e2b-traffic-access-token", token)]
    assert (await remote.get("/x", headers=twice)).status_code == 403
    assert (await remote.get("/health", headers=edge(made))).status_code == 204
    await remote.delete(f"/sandboxes/{made['sandboxID']}")
    assert (await remote.get("/x", headers=edge(made, 8000) | good)).status_code == 502


async def test_public_ports_ask_for_nothing(remote):
    made = await create(remote, network={"maskRequestHost": "a.b"})
    assert made["trafficAccessToken"] is None
    answer = await remote.get("/x", headers=edge(made, 8000) | {"e2b-traffic-access-token": "own"})
    assert answer.json()["headers"]["host"] == "a.b"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"network": {"allowPublicTraffic": False}, "secure": False}, 400),
        ({"network": {"allowPublicTraffic": False}, "tupper": {"ports": [{"guest": 80}]}}, 400),
        ({"network": {"maskRequestHost": "a\r\nX: y"}}, 400),
        ({"network": {"maskRequestHost": "a b"}}, 400),
        ({"network": {"maskRequestHost": "${OTHER}"}}, 400),
        ({"network": {"httpsPorts": [0]}}, 400),
        ({"network": {"httpsPorts": "443"}}, 400),
        ({"network": {"allowEverything": True}}, 400),
        ({"templateId": "base"}, 400),
        ({"tupper": {"memoryMib": 512}}, 400),
    ],
)
async def test_what_cannot_be(http, body, status):
    answer = await http.post("/v2/sandboxes", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, status)


async def test_private_ports_are_not_published(http):
    made = await create(http, network={"allowPublicTraffic": False})
    path = f"/tupper/v1/sandboxes/{made['sandboxID']}/ports"
    assert (await http.post(path, json={"port": 80})).status_code == 409
    assert made["tupper"]["plainPorts"] is False
