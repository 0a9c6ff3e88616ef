import asyncio
import socket

import pytest

from tupper.core.sockets import connect_unix


async def test_a_full_queue_is_waited_for(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        first = await connect_unix(path)
        waiting = asyncio.create_task(connect_unix(path))
        _, pending = await asyncio.wait({waiting}, timeout=0.1)
        assert waiting in pending
        accepted = [listener.accept()[0]]
        second = await asyncio.wait_for(waiting, 30)
        second[1].write(b"there")
        await second[1].drain()
        accepted.append(listener.accept()[0])
        assert accepted[1].recv(5) == b"there"
        for each in (first[1], second[1], *accepted):
            each.close()


async def test_nobody_listens(tmp_path):
    with pytest.raises(FileNotFoundError):
        await connect_unix(str(tmp_path / "none"))
