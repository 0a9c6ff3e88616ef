"""E2B's routes for templates: what they refuse, and uploads by links. Builds themselves need
machines and are in ``tests/e2e/e2b`` and ``tests/integration/engine``."""

import time
import uuid

import httpx2
import pytest

from integration.engine.world import InProcess, World
from tupper.core.errors import TemplateNotFound
from unit.server.serving import new_key, remote_client, serving

HASH = "0" * 64


class Templates:
    """Knows one recipe and nothing that was built."""

    def is_recipe(self, name):
        return name == "base"

    def info(self, name):
        raise TemplateNotFound(f"there is no template {name}")

    async def ensure(self, name, **_):
        raise TemplateNotFound(f"there is no template {name}")

    async def peek(self, name):
        return None

    async def remove(self, name):
        raise TemplateNotFound(f"there is no template {name}")


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path, InProcess())
    world.templates = Templates()
    async with serving(world):
        yield world


async def requested(remote, name="Mine:V1", **body):
    answer = await remote.post("/v3/templates", json={"name": name, **body})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def test_request(remote):
    made = await requested(remote, tags=["stable", "v1"])
    assert (made["templateID"], made["tags"]) == ("mine", ["stable", "v1"])
    assert {"buildID", "public", "names", "aliases"} <= set(made)
    assert str(uuid.UUID(made["buildID"])) == made["buildID"]
    assert (await requested(remote, "mine"))["tags"] == ["default"]
    path = f"/templates/mine/builds/{made['buildID']}/status?logsOffset=0"
    status = (await remote.get(path)).json()
    assert (status["status"], status["logEntries"], status["logs"]) == ("waiting", [], [])


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": "a/b"}, {"name": "../a"}, {"name": "a:b:c"}, {"name": ".a"},
        {"name": "a", "tags": ["A B"]}, {"name": "a", "tags": [str(uuid.UUID(int=1))]},
        {"name": f"a:{uuid.UUID(int=1)}"},
        {"name": "a", "cpuCount": "1"}, {"name": "a", "memoryMB": 1}, {"name": 5}, {"name": "a:"},
    ],
)  # fmt: skip
async def test_requests_that_are_refused(remote, body):
    answer = await remote.post("/v3/templates", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 400)


async def test_a_recipe_keeps_its_name(remote):
    answer = await remote.post("/v3/templates", json={"name": "base"})
    assert (answer.status_code, answer.json()["code"]) == (409, 409)
    assert (await remote.delete("/templates/base")).status_code == 403


async def link(remote, name="mine", files_hash=HASH):
    answer = await remote.get(f"/templates/{name}/files/{files_hash}")
    assert answer.status_code == 201
    return answer.json()


async def test_upload_by_a_link_without_a_key(world, remote):
    found = await link(remote)
    assert found["present"] is False
    async with httpx2.AsyncClient(timeout=60) as stranger:
        assert (await stranger.put(found["url"], content=b"archive")).status_code == 204
    assert (await link(remote))["present"] is True
    (kept,) = (world.paths.data / "templates" / "mine" / "files").iterdir()
    assert kept.read_bytes() == b"archive"
    assert kept.stat().st_mode & 0o077 == 0 or kept.parent.stat().st_mode & 0o077 == 0


async def test_links_that_are_no_permission(world, remote):
    url = (await link(remote))["url"]
    past = int(time.time()) - 10
    until = url.partition("until=")[2].partition("&")[0]
    async with httpx2.AsyncClient(timeout=60) as stranger:
        for forged in (
            url.partition("?")[0],
            url.replace("/mine/", "/other/"),
            url.replace(HASH, "1" * 64),
            url.replace(f"until={until}", f"until={past}"),
            url.replace(f"until={until}", "until=%C2%B2"),
            url[:-1] + ("0" if url[-1] != "0" else "1"),
            url + "&signature=%C3%A4",
        ):
            answer = await stranger.put(forged, content=b"x")
            assert (answer.status_code, answer.json()["code"]) == (401, 401), forged
        assert (await stranger.get(url)).status_code == 405
    assert not (world.paths.data / "templates" / "mine").exists()


@pytest.mark.parametrize("name", ["..%2F..%2Fx", "%2Fetc", "a%2Fb", ".."])
async def test_no_name_leads_out(world, remote, name):
    for path in (f"/templates/{name}/files/{HASH}", f"/templates/{name}/tags"):
        answer = await remote.get(path)
        assert answer.status_code in (400, 404)
    assert (await remote.get(f"/templates/mine/files/{'..%2F' * 3}x")).status_code == 400


PLAN = {"fromTemplate": "base", "force": False, "steps": []}


@pytest.mark.parametrize(
    "change",
    [
        {"fromImage": "alpine"},
        {"fromTemplate": ""},
        {"steps": [{"type": "FLY", "args": ["x"]}]},
        {"steps": [{"type": "RUN", "args": []}]},
        {"steps": [{"type": "RUN", "args": ["a\0b"]}]},
        {"steps": [{"type": "ENV", "args": ["A"]}]},
        {"steps": [{"type": "ENV", "args": ["A=B", "c"]}]},
        {"steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "../x"}]},
        {"steps": [{"type": "COPY", "args": ["a", "b", "", "999"], "filesHash": HASH}]},
        {"steps": [{"type": "USER", "args": ["a:b"]}]},
        {"steps": "x"},
        {"steps": [{"type": "RUN", "args": ["x"]}] * 1001},
    ],
)
async def test_plans_that_are_refused(remote, change):
    build_id = (await requested(remote, "mine"))["buildID"]
    answer = await remote.post(f"/v2/templates/mine/builds/{build_id}", json=PLAN | change)
    assert (answer.status_code, answer.json()["code"]) == (400, 400)


async def test_a_build_runs_once_and_its_failure_is_kept(world, remote):
    build_id = (await requested(remote, "mine"))["buildID"]
    path = f"/v2/templates/mine/builds/{build_id}"
    begun = await remote.post(path, json=PLAN)
    assert (begun.status_code, begun.content, begun.headers["content-length"]) == (202, b"", "0")
    assert (await remote.post(path, json=PLAN)).status_code == 409
    status = {"status": "building"}
    while status["status"] == "building":
        status = (await remote.get(f"{path[3:]}/status")).json()
    assert status["status"] == "error"
    assert status["reason"]["step"] == "base"
    assert "no template base" in status["reason"]["message"]
    assert str(world.directory) not in str(status)
    seen = len(status["logEntries"])
    assert (await remote.get(f"{path[3:]}/status?logsOffset={seen}")).json()["logEntries"] == []
    logs = (await remote.get(f"{path[3:]}/logs?level=error")).json()["logs"]
    assert [entry["level"] for entry in logs] == ["error"]


async def test_what_is_not_there(remote):
    nobody = uuid.uuid4()
    for method, path in (
        ("GET", f"/templates/mine/builds/{nobody}/status"),
        ("GET", "/templates/mine/builds/..%2F..%2Fx/status"),
        ("POST", f"/v2/templates/mine/builds/{nobody}"),
        ("GET", "/templates/aliases/mine%3Av1"),
        ("GET", "/templates/mine/tags"),
        ("GET", "/templates/mine"),
        ("DELETE", "/templates/mine"),
    ):
        answer = await remote.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, 404), path
    for method, path in (("POST", "/templates"), ("POST", "/v2/templates")):
        answer = await remote.request(method, path, json={})
        assert (answer.status_code, answer.json()["code"]) == (501, 501), path


async def test_a_template_belongs_to_the_key_that_made_it(world, http, remote):
    build_id = (await requested(remote, "mine"))["buildID"]
    async with remote_client(world, await new_key(http)) as other:
        assert (await other.post("/v3/templates", json={"name": "mine"})).status_code == 403
        assert (await other.get("/templates/aliases/mine")).status_code == 403
        for method, path, body in (
            ("GET", f"/templates/mine/files/{HASH}", None),
            ("GET", f"/templates/mine/builds/{build_id}/status", None),
            ("GET", f"/templates/mine/builds/{build_id}/logs", None),
            ("POST", f"/v2/templates/mine/builds/{build_id}", PLAN),
            ("GET", "/templates/mine/tags", None),
            ("POST", "/templates/tags", {"target": "mine", "tags": ["x"]}),
            ("DELETE", "/templates/tags", {"name": "mine", "tags": ["x"]}),
            ("DELETE", "/templates/mine", None),
            ("POST", "/v2/sandboxes", {"templateID": "mine"}),
        ):
            answer = await other.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, 404), path
        answer = await other.delete("/tupper/v1/templates/mine")
        assert answer.status_code == 403
        body = {"name": "mine", "dockerfile": "FROM base"}
        assert '"code": 403' in (await other.post("/tupper/v1/templates", json=body)).text
        theirs = (await requested(other, "theirs"))["buildID"]
        plan = PLAN | {"fromTemplate": "mine"}
        await other.post(f"/v2/templates/theirs/builds/{theirs}", json=plan)
        status = {"status": "building"}
        while status["status"] == "building":
            status = (await other.get(f"/templates/theirs/builds/{theirs}/status")).json()
        assert status["reason"]["message"] == "there is no template mine"
    status = await http.get(f"/templates/mine/builds/{build_id}/status")
    assert status.json()["status"] == "waiting"
