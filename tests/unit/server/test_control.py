"""The control plane over its private socket, with an engine whose machines are doubles."""

import asyncio
import contextlib
import json

import httpx2
import pytest

from tupper.core.errors import TemplateNotFound
from tupper.protocol.e2b import file_signature
from tupper.server.idempotency import KeyInProgress, Keys
from unit.server.serving import connect, create, edge


async def test_create_get_list_kill(world, http):
    made = await create(http, timeout=60, metadata={"a": "b"}, tupper={"name": "n"})
    assert {"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"} <= set(made)
    assert made["tupper"]["agent"]["kind"] == "unix"
    got = (await http.get(f"/sandboxes/{made['sandboxID']}")).json()
    assert (got["state"], got["metadata"], got["memoryMB"]) == ("running", {"a": "b"}, 1024)
    assert got["tupper"]["health"] == "ok"
    listed = (await http.get("/v2/sandboxes", params={"limit": 100})).json()
    assert [s["sandboxID"] for s in listed] == [made["sandboxID"]]
    assert "envdAccessToken" not in listed[0]
    answer = await http.delete("/sandboxes/n")
    assert (answer.status_code, answer.content) == (204, b"")
    answer = await http.delete("/sandboxes/n")
    assert answer.status_code == 404
    assert answer.json()["code"] == 404
    assert answer.json()["error_code"] == "sandbox_not_found"
    ended = (await http.get(f"/sandboxes/{made['sandboxID']}", params={"ended": "true"})).json()
    assert ended["tupper"]["endReason"] == "killed"
    assert world.leftovers() == []


async def test_private_socket_is_private(world):
    assert world.paths.socket.stat().st_mode & 0o777 == 0o600
    assert world.paths.runtime.stat().st_mode & 0o077 == 0


async def test_timeouts(http):
    made = await create(http, timeout=600)
    path = f"/sandboxes/{made['sandboxID']}"
    end = (await http.get(path)).json()["endAt"]
    for version in ("", "/v2"):
        answer = await http.post(f"{version}{path}/connect", json={"timeout": 10})
        assert answer.status_code == 200
    assert (await http.get(path)).json()["endAt"] == end
    assert (await http.post(f"{path}/connect", json={})).status_code == 400
    assert (await http.post(f"{path}/timeout", json={"timeout": 5})).status_code == 204
    assert (await http.get(path)).json()["endAt"] < end
    assert (await http.post(f"{path}/refreshes", json={"duration": 900})).status_code == 204
    assert (await http.get(path)).json()["endAt"] > end
    assert (await http.post(f"{path}/timeout", json={"timeout": 0})).status_code == 204
    async with asyncio.timeout(5):
        while (await http.get(path)).status_code != 404:
            await asyncio.sleep(0.01)


async def test_pages_and_filters(http):
    made = [await create(http, metadata={"a b": "c&d", "k": str(k)}) for k in range(3)]
    first = await http.get("/v2/sandboxes?limit=2")
    assert [s["sandboxID"] for s in first.json()] == [made[2]["sandboxID"], made[1]["sandboxID"]]
    token = first.headers["X-Next-Token"]
    second = await http.get("/v2/sandboxes", params={"limit": 2, "nextToken": token})
    assert [s["sandboxID"] for s in second.json()] == [made[0]["sandboxID"]]
    assert "X-Next-Token" not in second.headers
    assert (
        await http.get("/v2/sandboxes", params={"nextToken": token, "order": "asc"})
    ).status_code == 400
    found = await http.get("/v2/sandboxes?metadata=a%252520b%3Dc%252526d%26k%3D1")
    assert [s["sandboxID"] for s in found.json()] == [made[1]["sandboxID"]]
    assert (await http.get("/v2/sandboxes?metadata=nonsense")).status_code == 400
    assert (await http.get("/v2/sandboxes?state=paused")).json() == []
    assert (await http.get("/v2/sandboxes?limit=0")).status_code == 400
    after = (await http.get(f"/sandboxes/{made[1]['sandboxID']}")).json()["startedAt"]
    found = await http.get("/v2/sandboxes", params={"startedAfter": after})
    assert len(found.json()) == 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_argument"),
        (b"[]", 400, "invalid_argument"),
        (b'{"timeout": "x"}', 400, "invalid_argument"),
        (b'{"metadata": {"a": 1}}', 400, "invalid_argument"),
        (b'{"tupper": {"image": "missing"}}', 404, "image_not_found"),
        (b'{"tupper": {"memoryMiB": 1}}', 400, "invalid_argument"),
        (b'{"tupper": {"backend": "nope"}}', 404, "backend_not_found"),
        (b'{"tupper": {"minIsolation": "hardware-vm"}}', 503, "backend_unavailable"),
        (b'{"autoPause": true}', 501, "unsupported"),
        (b'{"metadata": {"a": "\\ud800"}}', 400, "invalid_argument"),
        (b'{"timeout": 1e999}', 400, "invalid_argument"),
        (b'{"timeout": ' + b"9" * 5000 + b"}", 400, "invalid_argument"),
        (b'{"sudo": true}', 400, "invalid_argument"),
        (b"[" * 100000, 400, "invalid_argument"),
        (b'{"a": "' + b"x" * 5_000_000 + b'"}', 400, "invalid_argument"),
    ],
)
async def test_bad_bodies(http, body, status, code):
    answer = await http.post("/v2/sandboxes", content=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["error_code"]) == (
        status,
        status,
        code,
    )
    if status == 503:
        assert answer.headers["Should-Retry"] == "false"


async def test_unknown_routes_are_json(http):
    assert (await http.get("/nothing")).json()["code"] == 404
    assert (await http.post("/sandboxes/x/pause")).json()["code"] == 404
    for path in ("volumes/team%2Fsnap%3Adefault", "templates/team%2Fsnap%3Adefault"):
        assert (await http.delete(f"/{path}")).json()["code"] == 404


async def test_metrics(http):
    made = await create(http)
    (sample,) = (await http.get(f"/sandboxes/{made['sandboxID']}/metrics")).json()
    assert set(sample) == {
        "timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache",
        "diskUsed", "diskTotal",
    }  # fmt: skip
    assert (await http.get(f"/sandboxes/{made['sandboxID']}/metrics?start=1&end=2")).json() == []
    many = await http.get("/sandboxes/metrics", params={"sandbox_ids": f"{made['sandboxID']},x"})
    assert list(many.json()["sandboxes"]) == [made["sandboxID"]]
    for ids in ("", ",".join(["x"] * 101)):
        answer = await http.get("/sandboxes/metrics", params={"sandbox_ids": ids})
        assert answer.status_code == 400


async def test_logs(http):
    made = await create(http)
    path = f"/sandboxes/{made['sandboxID']}/logs"
    (entry,) = (await http.get(f"/v2{path}")).json()["logs"]
    assert (entry["message"], entry["level"], entry["fields"]) == ("agent.started", "info", {})
    old = (await http.get(path)).json()
    assert (old["logs"][0]["line"], old["logEntries"]) == ("agent.started", [entry])
    assert (await http.get(f"/v2{path}?direction=sideways")).status_code == 400
    await http.delete(f"/sandboxes/{made['sandboxID']}")
    (entry,) = (await http.get(f"/v2{path}?level=error")).json()["logs"]
    assert entry["message"].startswith("ended: killed")
    assert (await http.get("/v2/sandboxes/nothing/logs")).status_code == 404


async def test_own_routes(world, http):
    made = await create(http, tupper={"name": "n"})
    info = (await http.get("/tupper/v1/info")).json()
    assert (info["protocol"], info["sandboxes"]) == (1, 1)
    doctor = (await http.get("/tupper/v1/doctor")).json()
    assert doctor["default"] == "double"
    assert doctor["backends"][0]["isolation"] == "user-kernel"
    address = (await http.post("/tupper/v1/sandboxes/n/ports", json={"port": 80})).json()["address"]
    assert (await http.get("/sandboxes/n")).json()["tupper"]["ports"] == {"80": address}
    assert (
        await http.post("/tupper/v1/sandboxes/n/idle-timeout", json={"idleTimeout": 99})
    ).status_code == 204
    assert (await http.get("/tupper/v1/sandboxes/n/log")).text == "agent.started\n"
    assert (await http.post("/tupper/v1/shutdown", json={})).status_code == 409
    assert (await http.post("/tupper/v1/shutdown", json={"force": True})).status_code == 202
    assert world.leave.is_set()
    assert made["sandboxID"] in world.backend.machines


async def test_tcp_asks_for_a_key(world, http, remote):
    async with httpx2.AsyncClient(base_url=world.tcp) as stranger:
        assert (await stranger.get("/v2/sandboxes")).status_code == 401
        wrong = await stranger.get("/v2/sandboxes", headers={"X-API-KEY": "e2b_00"})
        assert wrong.json()["error_code"] == "unauthenticated"
        assert (await stranger.get("/health")).status_code == 200
    made = await create(remote)
    assert "agent" not in made["tupper"]
    assert made["domain"] == "example.test"
    for tupper in (
        {"mounts": [{"hostPath": "/tmp", "guestPath": "/m"}]},
        {"ownerPid": 1},
        {"allowHostPorts": [1]},
    ):
        answer = await remote.post("/v2/sandboxes", json={"tupper": tupper})
        assert answer.status_code == 403
    assert (await remote.post("/tupper/v1/keys")).status_code == 403
    (key,) = (await http.get("/tupper/v1/keys")).json()
    assert (await http.delete(f"/tupper/v1/keys/{key['id']}")).status_code == 204
    assert (await remote.get("/v2/sandboxes")).status_code == 401


async def test_TB039_client_that_leaves_during_create(world, http):
    world.backend.hold = asyncio.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await http.post("/v2/sandboxes", json={})
    async with asyncio.timeout(5):
        while world.engine.count:
            await asyncio.sleep(0.01)
    assert world.leftovers() == []


async def test_edge_passes_requests_and_the_connection_serves_both_planes(remote):
    made = await create(remote)
    for _ in range(3):
        answer = await remote.post("/files?path=a", headers=edge(made), content=b"x" * 100)
        assert answer.json()["target"] == "/files?path=a"
        assert (await remote.get("/v2/sandboxes")).status_code == 200
    by_host = await remote.get(
        "/x",
        headers={
            "Host": f"8000-{made['sandboxID']}.example.test:99",
            "X-Access-Token": made["envdAccessToken"],
        },
    )
    assert by_host.json()["headers"]["host"].startswith("8000-")


async def test_a_call_of_the_control_plane_may_name_a_sandbox_in_headers(remote):
    made = await create(remote)
    place = f"/sandboxes/{made['sandboxID']}"
    answer = await remote.post(f"{place}/connect", json={"timeout": 60}, headers=edge(made))
    assert (answer.status_code, answer.json()["sandboxID"]) == (200, made["sandboxID"])
    # Another port is the sandbox's own, whatever it serves there.
    inside = await remote.get(place, headers=edge(made, 8000))
    assert inside.json()["target"] == place


async def test_edge_answers_for_the_dead_and_the_malformed(remote):
    made = await create(remote)
    headers = edge(made)
    assert (await remote.get("/health", headers=headers)).status_code == 204
    assert (await remote.post("/a/..//%69nit/", headers=headers)).status_code == 404
    assert (
        await remote.get("/x", headers={"E2b-Sandbox-Id": made["sandboxID"]})
    ).status_code == 400
    assert (await remote.get("/x", headers=headers | {"E2b-Sandbox-Port": "0"})).status_code == 400
    assert (
        await remote.get("/x", headers=headers | {"E2b-Sandbox-Id": "nonsense"})
    ).status_code == 400
    await remote.delete(f"/sandboxes/{made['sandboxID']}")
    gone = await remote.get("/health", headers=headers)
    assert gone.status_code == 502
    assert gone.json() == {
        "sandboxId": made["sandboxID"],
        "message": "The sandbox was not found",
        "code": 502,
    }


async def test_edge_finds_the_sandbox_of_a_signed_url(remote):
    from tupper.protocol.e2b import file_signature

    await create(remote)
    made = await create(remote)
    signature = file_signature("a.txt", "read", "", made["envdAccessToken"])
    query = {"path": "a.txt", "signature": signature}
    answer = await remote.get(
        "/files", params=query, headers={"X-Access-Token": made["envdAccessToken"]}
    )
    assert answer.json()["target"].startswith("/files?path=a.txt")
    assert (await remote.get("/files", params=query | {"path": "b"})).status_code == 401


async def test_TB087_kill_ends_streams_and_uploads(world, remote):
    made = await create(remote)
    ended = []

    async def read_on():
        async with remote.stream("GET", "/stream", headers=edge(made)) as answer:
            async for _ in answer.aiter_raw():
                started.release()

    async def stream():
        with pytest.raises(httpx2.HTTPError):
            await read_on()
        ended.append("stream")

    async def upload():
        async def body():
            yield b"x"
            started.release()
            await asyncio.Event().wait()

        with pytest.raises(httpx2.HTTPError):
            await remote.post(
                "/upload", headers=edge(made) | {"Content-Length": "99999999"}, content=body()
            )
        ended.append("upload")

    started = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(stream()), asyncio.create_task(upload())]
    for _ in range(10):
        await started.acquire()
    async with asyncio.timeout(5):
        assert (await remote.delete(f"/sandboxes/{made['sandboxID']}")).status_code == 204
        await asyncio.gather(tasks[0])
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert "stream" in ended


async def drain(reader):
    while await reader.read(1 << 16):
        pass


async def test_kill_resets_the_connection(world, http, remote):
    made = await create(remote)
    host, port = world.tcp.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = "".join(f"{k}: {v}\r\n" for k, v in edge(made).items())
    writer.write(f"GET /stream HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
    await reader.readuntil(b"tick")
    await http.delete(f"/sandboxes/{made['sandboxID']}")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(drain(reader), 5)
    writer.close()


async def test_kill_answers_a_request_that_has_had_no_answer(world, http, remote):
    made = await create(remote)
    host, port = world.tcp.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = "".join(f"{k}: {v}\r\n" for k, v in edge(made).items())
    writer.write(f"POST /upload HTTP/1.1\r\nContent-Length: 9\r\n{fields}\r\npart".encode())
    machine = world.backend.machines[made["sandboxID"]]
    while not machine.double.received:
        await asyncio.sleep(0.01)
    await http.delete(f"/sandboxes/{made['sandboxID']}")
    answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"The sandbox was not found" in answer
    writer.close()


async def test_edge_passes_upgrades(world, remote):
    made = await create(remote)
    host, port = world.tcp.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = "".join(f"{k}: {v}\r\n" for k, v in edge(made).items())
    writer.write(
        f"GET /ws HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n{fields}\r\nearly".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert await reader.readexactly(5) == b"early"
    writer.write(b"later")
    assert await reader.readexactly(5) == b"later"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def test_head_in_pieces_and_nonsense(world):
    host, port = world.tcp.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for byte in b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    for nonsense in (
        b"\x16\x03\x01" * 10 + b"\r\n\r\n",
        b"A" * 70000,
        b"GET / HTTP/1.1\r\n bad\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(nonsense)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        wanted = 431 if len(nonsense) > 65536 else 400
        assert head.startswith(b"HTTP/1.1 %d" % wanted)
        assert json.loads(body)["code"] == wanted
        writer.close()


async def test_json_stream_of_a_pull_reports_errors(http):
    answer = await http.post("/tupper/v1/images/pull", json={"reference": "missing"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[-1]["event"] == "error"
    assert lines[-1]["error"]["error_code"] == "image_not_found"


async def test_network_is_replaced(world, http):
    made = await create(http, network={"denyOut": ["198.51.100.0/24"]})
    path = f"/sandboxes/{made['sandboxID']}"
    change = {"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]}
    answer = await http.put(f"{path}/network", json=change)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await http.get(path)).json()["network"] == change
    (policy,) = world.network.policies.values()
    assert (policy.internet, policy.allow_out, policy.deny_out) == (
        True,
        ("1.1.1.1",),
        ("0.0.0.0/0",),
    )
    await http.put(f"{path}/network", json={"allow_internet_access": False})
    got = (await http.get(path)).json()
    assert got["allowInternetAccess"] is False
    assert "network" not in got
    await http.put(f"{path}/network", json={})
    assert (await http.get(path)).json()["allowInternetAccess"] is True
    assert (await http.put("/sandboxes/i00000000000000000000/network", json={})).status_code == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"denyOut": ["example.com"]}, 400),
        ({"allowOut": ["example.com"]}, 400),
        ({"allowOut": ["*.example.com"], "denyOut": ["0.0.0.0/0"]}, 501),
        ({"rules": {"example.com": [{}]}}, 501),
        ({"egressProxy": {"address": "x:1"}}, 501),
        ({"dnsServers": ["9.9.9.9"]}, 501),
        ({"egressProxy": None, "rules": {}}, 204),
    ],
)
async def test_network_that_cannot_be(world, http, change, status):
    made = await create(http, network={"denyOut": ["198.51.100.0/24"]})
    path = f"/sandboxes/{made['sandboxID']}"
    assert (await http.put(f"{path}/network", json=change)).status_code == status
    if status != 204:
        assert (await http.get(path)).json()["network"] == {"denyOut": ["198.51.100.0/24"]}


async def test_idempotency_key(world, http):
    async def ask(key, **body):
        body = {"templateID": "base", **body}
        return await http.post("/v2/sandboxes", json=body, headers={"Idempotency-Key": key})

    first, again = await ask("k-1"), await ask("k-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["sandboxID"] == again.json()["sandboxID"]
    other = await ask("k-1", metadata={"a": "b"})
    assert (other.status_code, other.json()["error_code"]) == (409, "idempotency_request_mismatch")
    assert (await ask("k-2")).json()["sandboxID"] != first.json()["sandboxID"]
    assert (await ask("no key")).status_code == 400
    assert (await ask("k-3", timeout=-1)).status_code == 400
    assert (await ask("k-3")).status_code == 201


async def test_idempotency_key_under_way():
    keys = Keys()
    with keys.claim("me", "k", {"a": 1}):
        with pytest.raises(KeyInProgress), keys.claim("me", "k", {"a": 1}):
            pass
        with keys.claim("you", "k", {"a": 2}) as other:
            assert other.record is None
    with keys.claim("me", "k", {"a": 3}) as free:
        assert free.record is None


async def test_links_get_an_address(http, remote):
    made = await create(http)
    assert (await remote.post("/tupper/v1/links")).status_code == 403
    url = (await http.post("/tupper/v1/links")).json()["url"]
    assert (await http.post("/tupper/v1/links")).json()["url"] == url
    async with httpx2.AsyncClient(timeout=10) as stranger:
        assert (await stranger.get(f"{url}/v2/sandboxes")).status_code == 401
        signature = file_signature("/x", "read", "", made["envdAccessToken"])
        query = {"path": "/x", "signature": signature}
        token = {"X-Access-Token": made["envdAccessToken"]}  # the double judges no signatures
        answer = await stranger.get(f"{url}/files", params=query, headers=token)
        assert answer.json()["target"].startswith("/files?path=")
        answer = await stranger.get(f"{url}/files", params={**query, "path": "/y"}, headers=token)
        assert answer.status_code == 401


async def test_slow_stranger_is_cut_off(world, monkeypatch):
    monkeypatch.setattr("tupper.server.front.HEAD_S", 0.05)
    monkeypatch.setattr("tupper.server.front.SILENT_S", 0.06)
    for said in (b"", b"GET / HT", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        reader, writer = await connect(world)
        writer.write(said)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                answer = await reader.read()
                assert (b"200 OK" in answer) == (b"health" in said)
        writer.close()


async def test_a_connection_ahead_of_need_may_wait_longer_than_a_head(world, monkeypatch):
    monkeypatch.setattr("tupper.server.front.HEAD_S", 0.0)
    reader, writer = await connect(world)
    await asyncio.sleep(0.1)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200" in await asyncio.wait_for(reader.readline(), 30)
    writer.close()


async def test_many_silent_strangers_may_not_wait(world, monkeypatch):
    monkeypatch.setattr("tupper.server.front.most_files", lambda: 20)
    monkeypatch.setattr("tupper.server.front.HEAD_S", 0.05)
    strangers = [await connect(world) for _ in range(9)]
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            assert await strangers[-1][0].read() == b""
    for _, writer in strangers:
        writer.close()


async def test_strangers_leave_descriptors_for_the_user(world, http, monkeypatch):
    monkeypatch.setattr("tupper.server.front.most_files", lambda: 20)
    strangers = [await connect(world) for _ in range(40)]
    async with asyncio.timeout(10):
        for reader, _ in strangers[10:]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    assert (await http.get("/health")).json() == {"status": "ok"}
    strangers[0][1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200" in await strangers[0][0].readline()
    for _, writer in strangers:
        writer.close()


async def test_body_of_a_stranger_is_not_waited_for(world):
    reader, writer = await connect(world)
    writer.write(b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401")
    writer.close()


async def test_edge_takes_no_whole_urls(world, http, remote):
    made = await create(http)
    to = f"E2b-Sandbox-Id: {made['sandboxID']}\r\nE2b-Sandbox-Port: 49983\r\n"
    for target in ("http://agent/init", "http:/init", "init", "agent:49983"):
        reader, writer = await connect(world)
        writer.write(
            f"POST {target} HTTP/1.1\r\nHost: x\r\n{to}Content-Length: 2\r\n\r\n{{}}".encode()
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 400"), target
        writer.close()


FILES = [
    "oci:/srv/i",
    "oci-archive:/a",
    "docker-archive:/etc/shadow",
    "docker-daemon:x:1",
    "/i.tar",
]


@pytest.mark.parametrize("reference", FILES)
async def test_remote_callers_cannot_read_the_hosts_files_as_images(remote, reference):
    made = await remote.post("/v2/sandboxes", json={"tupper": {"image": reference}})
    assert (made.status_code, made.json()["error_code"]) == (403, "permission_denied")
    pulled = await remote.post("/tupper/v1/images/pull", json={"reference": reference})
    assert (pulled.status_code, pulled.json()["error_code"]) == (403, "permission_denied")


@pytest.mark.parametrize("form", ["FROM {}", "ARG B={}\nFROM $B", "FROM base\nCOPY --from={} / /"])
async def test_remote_builds_cannot_either(world, remote, monkeypatch, form):
    async def ensure(name, **_):
        if name != "base":
            raise TemplateNotFound(name)
        return world.images.rootfs

    monkeypatch.setattr(world.engine.templates, "ensure", ensure)
    text = form.format("oci:/srv/i")
    answer = await remote.post("/tupper/v1/templates", json={"name": "t", "dockerfile": text})
    last = json.loads(answer.text.splitlines()[-1])
    assert (last["event"], last["error"]["error_code"]) == ("error", "permission_denied")
