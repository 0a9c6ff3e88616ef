"""Volumes and their content over HTTP; sandboxes that have them are doubles."""

import asyncio
import contextlib
import os

import pytest

from unit.server.serving import connect, create, new_key, remote_client


async def make(client, name="data"):
    answer = await client.post("/volumes", json={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()


def content(client, volume, token=None):
    """(method, tail, …) → the answer of the content API, with the volume's token only."""

    async def ask(method, tail, **more):
        headers = {"Authorization": f"Bearer {volume['token'] if token is None else token}"}
        url = f"/volumecontent/{volume['volumeID']}/{tail}"
        return await client.request(method, url, headers=headers, **more)

    return ask


@pytest.fixture
async def nobody(world):
    """Over TCP, without any key."""
    async with remote_client(world, "") as client:
        del client.headers["x-api-key"]
        yield client


async def test_volumes(remote):
    made = await make(remote)
    assert set(made) == {"volumeID", "name", "token"}
    listed = (await remote.get("/volumes")).json()
    assert listed == [{"volumeID": made["volumeID"], "name": "data"}]
    for reference in (made["volumeID"], "data"):
        assert (await remote.get(f"/volumes/{reference}")).json() == made
    again = await remote.post("/volumes", json={"name": "data"})
    assert (again.status_code, again.json()["error_code"]) == (400, "already_exists")
    for wrong in ({}, {"name": ""}, {"name": "a/b"}, {"name": ".."}, {"name": "a", "size": 1}):
        assert (await remote.post("/volumes", json=wrong)).status_code == 400
    assert (await remote.delete(f"/volumes/{made['volumeID']}")).status_code == 204
    gone = await remote.delete(f"/volumes/{made['volumeID']}")
    assert (gone.status_code, gone.json()["error_code"]) == (404, "volume_not_found")


async def test_content(remote, nobody):
    ask = content(nobody, await make(remote))
    written = await ask("PUT", "file", params={"path": "/d/f.txt", "force": "true"}, content=b"one")
    assert (written.status_code, written.json()["path"]) == (201, "/d/f.txt")
    told = (await ask("GET", "path", params={"path": "d/f.txt"})).json()
    assert set(told) == {
        "name", "type", "path", "size", "mode", "uid", "gid", "atime", "mtime", "ctime",
    }  # fmt: skip
    assert (told["name"], told["type"], told["size"], told["mode"]) == ("f.txt", "file", 3, 0o644)
    assert (await ask("GET", "file", params={"path": "/d/f.txt"})).content == b"one"
    changed = await ask("PATCH", "path", params={"path": "/d/f.txt"}, json={"mode": 0o600})
    assert changed.json()["mode"] == 0o600
    made = await ask("POST", "dir", params={"path": "/e", "mode": "448"})
    assert (made.status_code, made.json()["type"], made.json()["mode"]) == (201, "directory", 0o700)
    names = [
        e["path"] for e in (await ask("GET", "dir", params={"path": "/", "depth": "2"})).json()
    ]
    assert names == ["/d", "/d/f.txt", "/e"]
    assert (await ask("DELETE", "path", params={"path": "/d"})).status_code == 204
    missing = await ask("GET", "path", params={"path": "/d"})
    assert (missing.status_code, missing.json()["code"]) == (404, "path_not_found")
    empty = await ask("PUT", "file", params={"path": "empty"}, content=b"")
    assert (empty.json()["size"], (await ask("GET", "file", params={"path": "empty"})).content) == (
        0,
        b"",
    )
    for tail, params in (
        ("path", {}), ("file", {"path": "/"}), ("dir", {"path": "empty"}), ("dir", {"path": "/", "depth": "x"}),
    ):  # fmt: skip
        answer = await ask("GET", tail, params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), tail


async def test_large_content_comes_back(remote, nobody):
    ask, data = content(nobody, await make(remote)), os.urandom(5_000_000)

    async def body():
        for start in range(0, len(data), 77_777):
            yield data[start : start + 77_777]

    assert (await ask("PUT", "file", params={"path": "f"}, content=body())).json()[
        "size"
    ] == 5_000_000
    assert (await ask("GET", "file", params={"path": "f"})).content == data


async def test_content_asks_for_the_volumes_own_token(world, http, remote, nobody):
    one, other = await make(remote, "one"), await make(remote, "other")
    key = await new_key(http)
    for token in ("x", other["token"], key, one["token"] + "x"):
        answer = await content(nobody, one, token)("GET", "dir", params={"path": "/"})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert (await nobody.get(f"/volumecontent/{one['volumeID']}/dir")).status_code == 401
    missing = await content(nobody, {**one, "volumeID": "v" + "0" * 20})("GET", "dir")
    assert missing.status_code == 401
    async with remote_client(world, key) as stranger:
        for method in ("GET", "DELETE"):
            answer = await stranger.request(method, f"/volumes/{one['volumeID']}")
            assert answer.status_code == 404
        assert (await stranger.get("/volumes")).json() == []
        await make(stranger, "one")
        body = {"volumeMounts": [{"name": "other", "path": "/m"}]}
        assert (await stranger.post("/v2/sandboxes", json=body)).status_code == 400
    assert len((await http.get("/volumes")).json()) == 3


async def test_mounts(world, remote):
    volume = await make(remote)
    mounts = [{"name": "data", "path": "/mnt/data"}]
    made = await create(remote, volumeMounts=mounts)
    got = (await remote.get(f"/sandboxes/{made['sandboxID']}")).json()
    assert got["volumeMounts"] == mounts
    assert str(world.directory) not in str(got)
    (mount,) = world.backend.plans[made["sandboxID"]].mounts
    assert (mount.guest_path, mount.read_only) == ("/mnt/data", False)
    assert mount.host_path.is_dir()
    assert mount.host_path.parents[1].stat().st_mode & 0o077 == 0
    busy = await remote.delete(f"/volumes/{volume['volumeID']}")
    assert (busy.status_code, busy.json()["error_code"]) == (409, "conflict")
    await remote.delete(f"/sandboxes/{made['sandboxID']}")
    assert (await remote.delete(f"/volumes/{volume['volumeID']}")).status_code == 204
    assert not mount.host_path.exists()


@pytest.mark.parametrize(
    "mounts",
    [
        [{"name": "nothing", "path": "/a"}],
        [{"name": "data", "path": "a"}],
        [{"name": "data", "path": "/proc/x"}],
        [{"name": "data", "path": "/a/../b"}],
        [{"name": "data", "path": "/a"}, {"name": "data", "path": "/a/"}],
        [{"name": "data", "path": "/a", "readOnly": True}],
        ["data"],
        {"data": "/a"},
    ],
)
async def test_mounts_that_cannot_be(world, remote, mounts):
    await make(remote)
    answer = await remote.post("/v2/sandboxes", json={"templateID": "base", "volumeMounts": mounts})
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    assert world.leftovers() == []


async def test_volumes_survive_a_process_that_is_cut_off_anywhere(world, remote, monkeypatch):
    kept, cut = await make(remote, "kept"), await make(remote, "cut")
    ask = content(remote, kept)
    del remote.headers["x-api-key"]
    await ask("PUT", "file", params={"path": "f"}, content=b"1")
    volumes, directory = world.engine.volumes, world.paths.data / "volumes"
    # Cut off after a directory was made, and in the middle of a removal, on both sides of the row.
    (directory / ("v" + "1" * 20) / "tree").mkdir(parents=True)
    (directory / kept["volumeID"]).rename(directory / f"{kept['volumeID']}.removed")
    (directory / f"v{'2' * 20}.removed" / "tree").mkdir(parents=True)
    (directory / "foreign").mkdir()
    (directory / "foreign" / "file").write_text("not ours to remove")
    await volumes.load()
    assert {p.name for p in directory.iterdir()} == {kept["volumeID"], cut["volumeID"], "foreign"}
    assert (await ask("GET", "file", params={"path": "f"})).content == b"1"


def open_in(place):
    """How many descriptors this process has on what is below it."""
    found = []
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(entry.path).startswith(f"{place}/"))
    return sum(found)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("reads", [0, 1, 100_000])
async def test_a_client_that_leaves_in_a_download_leaves_no_open_file(world, remote, nobody, reads):
    volume = await make(remote)
    ask = content(nobody, volume)
    await ask("PUT", "file", params={"path": "large"}, content=bytes(32 << 20))
    place = world.paths.data / "volumes"
    for _ in range(10):
        reader, writer = await connect(world)
        line = f"GET /volumecontent/{volume['volumeID']}/file?path=large HTTP/1.1"
        writer.write(
            f"{line}\r\nHost: x\r\nAuthorization: Bearer {volume['token']}\r\n\r\n".encode()
        )
        if reads:
            assert (await reader.readexactly(reads)).startswith(b"H")
            assert open_in(place) == 1
        writer.transport.abort()
        if reads:
            await until(lambda: open_in(place) == 0)
    # Those that have left at once may not have been looked at yet; this one comes after them.
    assert len((await ask("GET", "file", params={"path": "large"})).content) == 32 << 20
    await until(lambda: open_in(place) == 0)
