import asyncio
import contextlib
import gc
import socket
import threading

import httpcore2
import pytest

from tupper.sdk import _io_async, _io_sync, _unix_sync
from tupper.sdk._shared.link import Ask, LinkError, Origin, Trouble


@contextlib.contextmanager
def full_queue(path):
    """A listener that accepts nobody, and whose queue has no room."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        yield listener


def connect(path, timeout):
    return _unix_sync.Sockets().connect_unix_socket(path, timeout=timeout)


def test_a_full_queue_is_waited_for(tmp_path):
    path = str(tmp_path / "s")
    with full_queue(path) as listener, contextlib.ExitStack() as stack:
        accepted = []

        def accept():
            for _ in range(2):
                accepted.append(stack.enter_context(listener.accept()[0]))

        timer = threading.Timer(0.1, accept)
        timer.start()
        stream = connect(path, 60.0)
        stream.write(b"there", timeout=60.0)
        timer.join(60)
        assert accepted[1].recv(5) == b"there"
        stream.close()


def test_a_queue_that_stays_full_is_a_timeout(tmp_path):
    path = str(tmp_path / "s")
    with full_queue(path), pytest.raises(httpcore2.ConnectTimeout):
        connect(path, 0.05)


# The async half.


@contextlib.asynccontextmanager
async def server(path, *, answers=None, backlog=4):
    """Answers ``GET`` with its path; after ``answers`` of them it closes the connection."""
    met = []

    async def serve(reader, writer):
        met.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for _ in range(answers or 1000):
                target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(target)}\r\n\r\n"
                writer.write(head.encode() + target)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_unix_server(serve, path, backlog=backlog)
    http = _io_async.Http(Origin("http://x", path))
    try:
        yield http, met
    finally:
        await http.close()
        listening.close()
        for writer in met:
            writer.close()


async def test_hundreds_at_once_find_room_in_a_short_queue(tmp_path, monkeypatch):
    monkeypatch.setattr(
        _io_async, "CONNECT_TIMEOUT_S", 60.0
    )  # on a host that has other things to do
    async with server(str(tmp_path / "s")) as (http, met):
        answers = await asyncio.gather(*(http.call(Ask("GET", f"/{n}")) for n in range(400)))
        assert [answer.body for answer in answers] == [b"/%d" % n for n in range(400)]
        assert len(met) > 128


async def test_a_queue_that_stays_full_is_a_refusal(tmp_path, monkeypatch):
    path = str(tmp_path / "s")
    monkeypatch.setattr(_io_async, "CONNECT_TIMEOUT_S", 0.05)
    with full_queue(path):
        http = _io_async.Http(Origin("http://x", path))
        with pytest.raises(LinkError) as caught:
            await http.call(Ask("GET", "/"))
        assert caught.value.trouble is Trouble.REFUSED
        await http.close()


async def test_nobody_listens(tmp_path):
    http = _io_async.Http(Origin("http://x", str(tmp_path / "none")))
    with pytest.raises(LinkError) as caught:
        await http.call(Ask("GET", "/"))
    assert caught.value.trouble is Trouble.REFUSED
    await http.close()


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again(tmp_path):
    async with server(str(tmp_path / "s"), answers=1) as (http, met):
        for n in range(3):
            assert (await http.call(Ask("GET", f"/{n}"))).body == b"/%d" % n
            await asyncio.wait_for(met[n].wait_closed(), 30)
        assert len(met) == 3


async def test_a_connection_is_used_again(tmp_path):
    async with server(str(tmp_path / "s")) as (http, met):
        for n in range(3):
            assert (await http.call(Ask("GET", f"/{n}"))).body == b"/%d" % n
        assert len(met) == 1


@contextlib.asynccontextmanager
async def one_call_under_way(path, ask):
    """A call that waits for its answer; yields the call and both ends of what answers it."""
    met = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        met.set_result((reader, writer))

    listening = await asyncio.start_unix_server(serve, path)
    call = asyncio.ensure_future(ask())
    reader, writer = await met
    try:
        yield call, reader, writer
    finally:
        writer.close()
        listening.close()


def answer(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere")


async def test_closing_lets_calls_under_way_have_their_answer(tmp_path):
    path = str(tmp_path / "s")
    http = _io_async.Http(Origin("http://x", path))
    async with one_call_under_way(path, lambda: http.call(Ask("GET", "/"))) as (
        call,
        reader,
        writer,
    ):
        await http.close()
        answer(writer)
        assert (await asyncio.wait_for(call, 30)).body == b"there"
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_closing_lets_calls_of_other_threads_have_their_answer(tmp_path):
    path = str(tmp_path / "s")
    http = _io_sync.Http(Origin("http://x", path))

    async def ask():
        return await asyncio.to_thread(http.call, Ask("GET", "/"))

    async with one_call_under_way(path, ask) as (call, reader, writer):
        http.close()
        answer(writer)
        assert (await asyncio.wait_for(call, 30)).body == b"there"
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_silence_and_a_break_are_told_apart(tmp_path):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        met.set_result(writer)

    met = asyncio.get_running_loop().create_future()
    listening = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
    http = _io_async.Http(Origin("http://x", str(tmp_path / "s")))
    asking = asyncio.ensure_future(http.open(Ask("GET", "/")))
    writer = await met
    writer.close()
    with pytest.raises(LinkError) as caught:
        await asking
    assert caught.value.trouble is Trouble.BROKEN
    met = asyncio.get_running_loop().create_future()
    with pytest.raises(LinkError) as caught:
        await http.open(Ask("GET", "/", timeout_s=0.05))
    assert caught.value.trouble is Trouble.SILENT
    (await met).close()
    await http.close()
    listening.close()


async def test_a_client_that_is_forgotten_in_a_cycle_closes_its_connections(tmp_path):
    async with server(str(tmp_path / "s")) as (_, met):
        cycle = [_io_async.Http(Origin("http://x", str(tmp_path / "s")))]
        await cycle[0].call(Ask("GET", "/"))
        cycle.append(cycle)
        del cycle
        gc.collect()
        async with asyncio.timeout(30):
            while not met[0].transport.is_closing():
                await asyncio.sleep(0.01)
