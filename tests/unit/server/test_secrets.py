"""Secrets go in and never come out."""

import pytest

from tupper.core.secret import SecretRecord
from unit.server.serving import new_key, remote_client

VALUE = "s3cret-value-of-the-test"


async def make(client, name="Api-Key", **more):
    answer = await client.post("/secrets", json={"name": name, "value": VALUE, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_secrets(world, http, remote, caplog):
    made = await make(remote, metadata={"a": "b"})
    assert (made["name"], made["currentVersion"], made["metadata"]) == ("api-key", 1, {"a": "b"})
    assert made["secretID"].startswith("sec_")
    path = f"/secrets/{made['secretID']}"
    changed = await remote.post("/secrets/API-KEY", json={"value": VALUE + "2"})
    assert (changed.status_code, changed.json()["currentVersion"]) == (200, 2)
    assert changed.json()["metadata"] == {"a": "b"}
    got = await remote.get(path)
    assert got.json() == changed.json()
    listed = await remote.get("/secrets")
    assert listed.json() == [changed.json()]
    again = await remote.post("/secrets", json={"name": "api-key", "value": VALUE})
    for answer in (changed, got, listed, again, await http.get(path)):
        assert VALUE not in answer.text
    assert again.status_code == 409
    assert VALUE not in caplog.text
    assert VALUE not in repr(SecretRecord("i", "n", VALUE))
    await world.engine.secrets.load()  # as the next process does
    assert (await remote.get(path)).json() == changed.json()
    database = world.paths.data / "tupper.db"
    assert database.stat().st_mode & 0o077 == 0
    assert (await remote.delete(path)).status_code == 204
    gone = await remote.delete(path)
    assert (gone.status_code, gone.json()["error_code"]) == (404, "secret_not_found")


async def test_pages(remote):
    names = [(await make(remote, f"s{number}"))["name"] for number in range(5)]
    seen, token = [], None
    while True:
        query = {"limit": 2, **({"nextToken": token} if token else {})}
        answer = await remote.get("/secrets", params=query)
        seen += [each["name"] for each in answer.json()]
        token = answer.headers.get("X-Next-Token")
        if not token:
            break
    assert seen == names
    assert (await remote.get("/secrets?nextToken=x")).status_code == 400


async def test_a_key_sees_its_own(world, http, remote):
    made = await make(remote)
    async with remote_client(world, await new_key(http)) as other:
        assert (await other.get("/secrets")).json() == []
        for method in ("GET", "DELETE"):
            assert (await other.request(method, f"/secrets/{made['secretID']}")).status_code == 404
        answer = await other.post(f"/secrets/{made['secretID']}", json={"value": "x"})
        assert answer.status_code == 404
        await make(other)
    assert len((await http.get("/secrets")).json()) == 2


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": "a"}, {"name": "", "value": "x"}, {"name": "a", "value": ""},
        {"name": "sec_a", "value": "x"}, {"name": "a}", "value": "x"}, {"name": 1, "value": "x"},
        {"name": "a", "value": "x" * 70000}, {"name": "a", "value": "x", "metadata": {"k": 1}},
        {"name": "a", "value": "x", "metadata": {"k" * 200: "v"}}, {"name": "a", "value": "x", "b": 1},
    ],
)  # fmt: skip
async def test_secrets_that_cannot_be(remote, body):
    answer = await remote.post("/secrets", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 400)


async def test_nothing_takes_a_secret_and_forgets_it(remote):
    await make(remote)
    header = {"transform": {"headers": {"X": "${e2b.secrets.api-key}"}}}
    network = {"rules": {"example.com": [header]}}
    answer = await remote.post("/v2/sandboxes", json={"templateID": "base", "network": network})
    assert (answer.status_code, answer.json()["error_code"]) == (501, "unsupported")
