"""Ports on the host that lead inside, through an agent that is played by this process."""

import asyncio
import contextlib
import os
import socket

import pytest

from tupper.core.backend import AgentAddress
from tupper.core.errors import AlreadyExists, InvalidArgument
from tupper.network import PortForward

UP = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
SHUT = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


class Inside:
    """The agent and the server behind it in one: after the head it runs ``talk``."""

    def __init__(self, path, talk, refusals=0):
        self.path, self.talk, self.refusals = str(path), talk, refusals
        self.heads, self.ends, self.tasks = [], 0, set()

    async def __aenter__(self):
        self.server = await asyncio.start_unix_server(self.serve, self.path)
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            if len(self.heads) <= self.refusals:
                writer.write(SHUT)
                return
            writer.write(UP)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self.talk(reader, writer)
            self.ends += 1
        finally:
            writer.close()


async def echo(reader, writer):
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()


@contextlib.asynccontextmanager
async def forwarded(tmp_path, talk, **options):
    async with Inside(tmp_path / "agent", talk, **options) as inside:
        forward = PortForward()
        port = await forward.open(
            AgentAddress("unix", path=inside.path), "secret", 8000, "127.0.0.1", 0
        )
        try:
            yield inside, port
        finally:
            forward.close()


async def settled(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_TB033_a_connection_leads_inside_by_every_name_of_loopback(tmp_path, host):
    async with forwarded(tmp_path, echo) as (inside, port):
        if host == "::1" and not socket.has_ipv6:
            pytest.skip("no IPv6 here")
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello"
        writer.close()
        assert inside.heads[0].startswith(b"GET /tupper/tunnel?port=8000 HTTP/1.1\r\n")
        assert b"X-Access-Token: secret\r\n" in inside.heads[0]


async def test_each_direction_ends_on_its_own(tmp_path):
    async def count(reader, writer):
        writer.write(b"%d bytes" % len(await reader.read()))  # answers only after our end

    async with forwarded(tmp_path, count) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"1000000 bytes"
        writer.close()


async def test_a_server_that_speaks_first_and_ends_first(tmp_path):
    async def banner(reader, writer):
        writer.write(b"SSH-2.0")
        writer.write_eof()
        await reader.read()

    async with forwarded(tmp_path, banner) as (inside, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"SSH-2.0"
        writer.close()
        await settled(lambda: inside.ends == 1)


async def test_a_slow_reader_holds_the_sender_back(tmp_path):
    sent = 0

    async def flood(reader, writer):
        nonlocal sent
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with forwarded(tmp_path, flood) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        before = -1
        for _ in range(200):  # until nothing moves any more
            if sent == before:
                break
            before = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent == before
        assert sent < 32 << 20
        writer.transport.abort()


async def test_a_port_that_opens_a_moment_later_is_waited_for(tmp_path):
    async with forwarded(tmp_path, echo, refusals=3) as (inside, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        writer.close()
        assert len(inside.heads) == 4


async def test_a_port_that_stays_closed_is_a_reset(tmp_path):
    async with forwarded(tmp_path, echo, refusals=10**9) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 20)
        writer.close()


@pytest.mark.parametrize("head", [b"SSH\r\n\r\n", b"HTTP/1.1 101\r\n", b"x" * 300_000, b""])
async def test_TB107_a_hostile_agent_is_a_reset(tmp_path, head):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "agent")
    forward = PortForward()
    port = await forward.open(
        AgentAddress("unix", path=str(tmp_path / "agent")), "t", 1, "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 20)
    writer.close()
    forward.close()
    server.close()


async def test_TB099_two_thousand_connections_leave_nothing(tmp_path):
    async def one(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
        await writer.wait_closed()

    async with forwarded(tmp_path, echo) as (inside, port):
        await one(port)
        await settled(lambda: inside.ends == 1 and not inside.tasks)
        before, tasks = descriptors(), len(asyncio.all_tasks())
        for _ in range(10):
            await asyncio.gather(*(one(port) for _ in range(200)))
        await settled(lambda: inside.ends == 2001 and not inside.tasks)
        await settled(lambda: len(asyncio.all_tasks()) <= tasks)
        await settled(lambda: descriptors() <= before)
        await one(port)


async def test_a_port_in_use_is_named(tmp_path):
    address = AgentAddress("unix", path=str(tmp_path / "a"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AlreadyExists, match=f"port {port} on 127.0.0.1"):
            await PortForward().open(address, "t", 1, "127.0.0.1", port)
    with pytest.raises(InvalidArgument, match=r"203\.0\.113\.1"):
        await PortForward().open(address, "t", 1, "203.0.113.1", 0)


async def test_only_ipv6_in_use_is_no_reason_to_fail(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            taken = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        except OSError:
            pytest.skip("no IPv6 here")
        port = taken.getsockname()[1]
        forward = PortForward()
        address = AgentAddress("unix", path=str(tmp_path / "a"))
        assert await forward.open(address, "t", 1, "127.0.0.1", port) == port
        forward.close()


async def test_closing_ends_what_is_open_and_frees_the_port(tmp_path):
    async with Inside(tmp_path / "agent", echo) as inside:
        forward, address = PortForward(), AgentAddress("unix", path=str(tmp_path / "agent"))
        port = await forward.open(address, "t", 1, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        forward.close()
        forward.close()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        await settled(lambda: inside.ends == 1)
        assert await forward.open(address, "t", 1, "127.0.0.1", port) == port
        forward.close()
