"""The engine's client of an agent, against agents that are honest, broken, silent and hostile."""

import json
import tracemalloc

import pytest

from tupper.core.backend import AgentAddress
from tupper.core.errors import (
    GuestMisbehaved,
    InvalidArgument,
    MachineUnreachable,
    NotFound,
    TupperError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from tupper.guest import Agent, dial
from unit.guest.hostile import FakeAgent, always, reply

STATUS = {
    "version": "0.1.0", "protocol": 1, "envdVersion": "0.6.13", "sandboxId": "i", "startedAt": 1,
    "lastActivity": 5000, "activeStreams": 0, "processes": 0, "held": False, "limitsHit": [],
}  # fmt: skip


def client(fake, **options):
    return Agent(AgentAddress("unix", path=fake.path), "secret", **options)


async def test_calls_carry_the_token_and_come_back_checked(tmp_path):
    async with FakeAgent(tmp_path / "a", always(reply(json.dumps(STATUS).encode()))) as fake:
        assert (await client(fake).status())["lastActivity"] == 5000
        assert b"X-Access-Token: secret" in fake.requests[0]
        assert fake.requests[0].startswith(b"GET /tupper/status HTTP/1.1\r\n")


async def test_every_route_is_called_as_the_agent_knows_it(tmp_path):
    bodies = {
        b"/tupper/ports": b'{"ports": [{"address": "127.0.0.1", "port": 80}]}',
        b"/tupper/identity": b'{"problems": ["hostname: no"]}',
        b"/tupper/log": b"one\ntwo\xff\n",
        b"/metrics": b'{"cpu_count": 2}',
    }

    async def answer(head):
        yield reply(bodies.get(head.split(b" ")[1], b""))

    async with FakeAgent(tmp_path / "a", answer) as fake:
        agent = client(fake)
        await agent.health()
        await agent.init(env_vars={"A": "b"}, default_user="user")
        await agent.deadline(5.0)
        await agent.shutdown(grace_s=1)
        await agent.hold()
        await agent.release()
        assert await agent.ports() == [("127.0.0.1", 80)]
        assert await agent.log() == "one\ntwo\ufffd\n"
        assert (await agent.metrics())["cpu_count"] == 2
        assert await agent.identity(token="new", hostname="h") == ["hostname: no"]
        await agent.health()
        assert b"X-Access-Token: new" in fake.requests[-1]
        posts = [head.split(b" ")[1] for head in fake.requests if head.startswith(b"POST")]
        assert posts == [
            b"/init", b"/tupper/deadline", b"/tupper/shutdown", b"/tupper/hold", b"/tupper/release",
            b"/tupper/identity",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", Unauthenticated),
        ("404 Not Found", NotFound),
        ("400 Bad Request", InvalidArgument),
        ("500 Internal Server Error", Unavailable),
        ("302 Found", Unavailable),
    ],
)
async def test_errors_of_the_agent_are_typed(tmp_path, status, kind):
    body = b'{"code": 400, "message": "no such thing"}'
    headers = b"Location: http://198.51.100.1/\r\n"
    async with FakeAgent(tmp_path / "a", always(reply(body, status, headers))) as fake:
        with pytest.raises(kind, match="no such thing"):
            await client(fake).deadline(0)
        assert len(fake.requests) == 1


async def test_a_socket_nobody_listens_on_is_unreachable(tmp_path):
    agent = Agent(AgentAddress("unix", path=str(tmp_path / "none")), "t")
    with pytest.raises(MachineUnreachable):
        await agent.status()
    with pytest.raises(MachineUnreachable):
        await agent.health(timeout_s=0.02)


@pytest.mark.parametrize("chunks", [(), (None,), (b"HTTP/1.1 200 OK\r\n", None)])
async def test_TB107_a_silent_agent_is_unreachable(tmp_path, chunks):
    async with FakeAgent(tmp_path / "a", always(*chunks)) as fake:
        with pytest.raises(MachineUnreachable):
            await client(fake, timeout_s=0.05).status()


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xfe\x00 no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        reply(b"[" * 10_000),
        reply(b"\xff"),
        reply(b"[]"),
        reply(b'{"activeStreams": "many"}'),
        reply(b'{"lastActivity": 1e400}'),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 3_000_000,
    ],
    ids=range(13),
)
async def test_TB107_hostile_answers_end_in_an_error(tmp_path, answer):
    async with FakeAgent(tmp_path / "a", always(answer)) as fake:
        with pytest.raises((GuestMisbehaved, MachineUnreachable)) as caught:
            await client(fake).status()
        assert isinstance(caught.value, TupperError)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("endless", [b"x" * 65536, b"A: b\r\n" * 10_000])
async def test_TB107_endless_answers_are_bounded(tmp_path, endless):
    async def answer(_):
        yield b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if endless[0] == 120 else b"")
        while True:
            yield endless

    async with FakeAgent(tmp_path / "a", answer) as fake:
        tracemalloc.start()
        try:
            with pytest.raises(GuestMisbehaved):
                await client(fake).metrics()
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


async def test_TB107_an_endless_log_is_cut(tmp_path):
    async def answer(_):
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"line\n" * 10_000

    async with FakeAgent(tmp_path / "a", answer) as fake:
        assert len(await client(fake).log()) == 1024 * 1024


async def test_a_tunnel_is_opened_and_refused(tmp_path):
    up = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\nbanner"
    async with FakeAgent(tmp_path / "a", always(up)) as fake:
        reader, writer = await client(fake).open_tunnel(22)
        assert await reader.read(100) == b"banner"
        writer.close()
        assert fake.requests[0].startswith(b"GET /tupper/tunnel?port=22 HTTP/1.1")
    async with FakeAgent(tmp_path / "b", always(reply(status="502 Bad Gateway"))) as fake:
        with pytest.raises(Unavailable, match="port 23"):
            await client(fake).open_tunnel(23)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101\r\n", b"SSH-2.0-x\r\n\r\n", b"x" * 200_000])
async def test_TB107_a_hostile_tunnel_head_is_refused(tmp_path, answer):
    async with FakeAgent(tmp_path / "a", always(answer)) as fake:
        with pytest.raises((GuestMisbehaved, MachineUnreachable)):
            await dial(AgentAddress("unix", path=fake.path), "t", 22, timeout_s=5)


async def test_vsock_is_refused_by_name():
    with pytest.raises(Unsupported, match="vsock"):
        await Agent(AgentAddress("vsock", path="/x"), "t").status()
