"""One client's connection over two of the guest's."""

import asyncio
import contextlib

import pytest

from tupper.core.errors import MachineUnreachable
from tupper.server.joining import Joint


@contextlib.asynccontextmanager
async def pair(tmp_path, name):
    """The two ends of a connection, as streams."""
    accepted = asyncio.get_running_loop().create_future()
    path = str(tmp_path / name)
    server = await asyncio.start_unix_server(lambda r, w: accepted.set_result((r, w)), path)
    near = await asyncio.open_unix_connection(path)
    far = await accepted
    try:
        yield near, far
    finally:
        for _, writer in (near, far):
            writer.close()
        server.close()


async def test_a_client_notices_nothing_of_a_change_of_the_guests_connection(tmp_path):
    async with (
        pair(tmp_path, "c") as (client, ours),
        pair(tmp_path, "1") as (to_one, one),
        pair(tmp_path, "2") as (to_two, two),
    ):
        held = [True]

        async def again():
            held[0] = False
            return to_two

        joint = Joint(ours, to_one, is_held=lambda: held[0], again=again)
        joining = asyncio.create_task(joint.join())
        client[1].write(b"up 1 ")
        assert await one[0].readexactly(5) == b"up 1 "
        one[1].write(b"down 1 ")
        one[1].write_eof()
        assert await client[0].readexactly(7) == b"down 1 "
        assert await one[0].read() == b""  # ours says "no more" too
        client[1].write(b"up 2 ")
        assert await two[0].readexactly(5) == b"up 2 "
        client[1].write_eof()
        assert await two[0].read() == b""
        two[1].write(b"down 2")
        two[1].write_eof()
        assert await client[0].read() == b"down 2"
        await asyncio.wait_for(joining, 30)


@pytest.mark.parametrize("comes_back", ["over", "never"])
async def test_an_end_is_an_end_and_a_guest_that_does_not_come_back_a_reset(tmp_path, comes_back):
    async with pair(tmp_path, "c") as (client, ours), pair(tmp_path, "1") as (to_one, one):

        async def again():
            if comes_back == "never":
                raise MachineUnreachable("gone")

        joint = Joint(ours, to_one, is_held=lambda: True, again=again)
        joining = asyncio.create_task(joint.join())
        one[1].write(b"all")
        one[1].write_eof()
        assert await client[0].readexactly(3) == b"all"
        await asyncio.wait_for(joining, 30)
        assert await client[0].read() == b""
        assert ours[1].transport.is_closing() is (comes_back == "never")
