"""What is too much, too long, too odd or cut off: an error of the documented shape."""

import asyncio
import json

import httpx2
import pytest

from tupper.server.rate import Rate
from unit.server.serving import connect, create, new_key, remote_client


async def say(world, *pieces, end=False):
    """Send raw bytes; (status, parsed body) of the answer."""
    reader, writer = await connect(world)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    if end:
        writer.write_eof()
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), json.loads(body)


def request(key, length, body=b"", more=b""):
    return (
        b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: %s\r\nContent-Length: %d\r\n%s\r\n%s"
        % (key.encode(), length, more, body)
    )


async def test_half_closed_uploads(world, http):
    key = await new_key(http)
    for pieces in (
        (b"POST /v2/sandboxes HT",),
        (request(key, 100),),
        (request(key, 100, b"{"),),
        (request(key, 100), b'{"a":'),
    ):
        status, body = await say(world, *pieces, end=True)
        assert (status, body["code"], body["error_code"]) == (400, 400, "invalid_argument")
    assert world.engine.count == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
    ],
)
async def test_heads_that_are_none(world, raw):
    status, body = await say(world, raw)
    assert status == body["code"]
    assert status == (431 if len(raw) > 65536 else body["code"])
    assert status in (400, 431, 501)


async def test_slow_bodies_have_an_end(world, http, monkeypatch):
    monkeypatch.setattr("tupper.server.http.BODY_S", 0.05)
    key = await new_key(http)
    reader, writer = await connect(world)
    writer.write(request(key, 100, b"{", b"Connection: close\r\n"))
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert "did not come" in json.loads(body)["message"]
    writer.close()


async def test_odd_paths(remote):
    made = await create(remote, tupper={"name": "n"})
    own = made["sandboxID"]
    for path in (
        "/sandboxes/%2F", "/sandboxes/..%2F..%2Fetc", f"/sandboxes/{own}%2Fmetrics",
        "/sandboxes/%00", "/sandboxes/%FF%FE", "/sandboxes/" + "a" * 3000, "/volumes/%2e%2e",
        "/secrets/a%2Fb", "/templates/%2F", "/tupper/v1/images/%2F..%2F", "//sandboxes",
        "/sandboxes/", "/nothing%20here",
    ):  # fmt: skip
        answer = await remote.get(path)
        assert answer.json()["code"] == answer.status_code, path
        assert answer.status_code in (400, 404, 405), path
    assert (await remote.get(f"/sandboxes/%{ord(own[0]):02x}{own[1:]}")).status_code == 200


async def test_many_ids_and_odd_queries(remote):
    ids = ",".join(["i" + "a" * 20] * 2000)
    for query in (
        f"/sandboxes/metrics?sandbox_ids={ids}", "/v2/sandboxes?state=resting",
        "/v2/sandboxes?order=up", "/v2/sandboxes?limit=1e3", "/v2/sandboxes?limit=-1",
        "/v2/sandboxes?nextToken=%00", "/v2/sandboxes?startedAfter=then",
        "/v2/sandboxes?template=a:b", "/v2/sandboxes?metadata=a%3Db%3Dc",
    ):  # fmt: skip
        answer = await remote.get(query)
        assert (answer.status_code, answer.json()["code"]) == (400, 400), query[:80]


async def test_rate(world, http, monkeypatch):
    monkeypatch.setattr(world.gate, "_rate", Rate(0.001))
    monkeypatch.setattr(world.gate, "_strangers", Rate(0.001))
    for one in (Rate(0), Rate(1)):
        assert one.allows("a")
    now = [0.0]
    rate = Rate(1, lambda: now[0])
    assert [rate.allows("a") for _ in range(3)] == [True, True, False]
    assert rate.allows("b")
    now[0] = 1.0
    assert [rate.allows("a") for _ in range(2)] == [True, False]
    key = await new_key(http)
    async with remote_client(world, key) as client:
        answer = await client.get("/v2/sandboxes")
        assert (answer.status_code, answer.json()["code"]) == (429, 429)
        assert (answer.headers["Retry-After"], answer.headers["Should-Retry"]) == ("1", "true")
    async with httpx2.AsyncClient(base_url=world.tcp) as stranger:
        assert (await stranger.get("/v2/sandboxes")).status_code == 429
    assert (await http.get("/v2/sandboxes")).status_code == 200
