"""The control plane over its private socket and over TCP, with machines that are doubles."""

import asyncio
from contextlib import asynccontextmanager

import httpx2

from tupper.core.settings import Settings
from tupper.engine import Engine
from tupper.server.activity import Activity
from tupper.server.app import make_app
from tupper.server.links import Links
from tupper.server.listen import Listeners, bind_private, bind_tcp


@asynccontextmanager
async def serving(world):
    engine = await Engine.open(
        world.paths, Settings(min_free_disk_mib=1), find_parts=world.find_parts
    )
    activity, leave = Activity(), asyncio.Event()
    app = make_app(engine, activity, leave)
    listeners = Listeners(engine, app, activity)
    app.lead_links(Links(world.paths, listeners, (), None))
    tcp = bind_tcp("127.0.0.1:0")
    world.tcp = f"http://127.0.0.1:{tcp.getsockname()[1]}"
    world.engine, world.leave, world.app, world.gate = engine, leave, app.inner, app
    await listeners.add(bind_private(world.paths.socket), local=True, domain=None)
    await listeners.add(tcp, local=False, domain="example.test")
    try:
        yield
    finally:
        await listeners.finish(timeout_s=1)
        await activity.finish(timeout_s=0)
        await engine.close()
        for machine in world.backend.machines.values():
            machine.double.silent.set()
            await machine.stop(grace_s=0)


async def create(http, **body):
    answer = await http.post("/v2/sandboxes", json={"templateID": "base", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def edge(made, port=49983):
    return {
        "E2b-Sandbox-Id": made["sandboxID"],
        "E2b-Sandbox-Port": str(port),
        "X-Access-Token": made["envdAccessToken"],
    }


async def connect(world):
    host, port = world.tcp.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def new_key(http):
    """Make an API key; its secret."""
    return (await http.post("/tupper/v1/keys", json={"label": "t"})).json()["key"]


def remote_client(world, key):
    """A client over TCP."""
    return httpx2.AsyncClient(base_url=world.tcp, headers={"X-API-KEY": key}, timeout=10)
