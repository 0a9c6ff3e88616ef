"""Whose sandboxes are whose, and that they end."""

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from e2e.mcp.serving import Caller, over_http, running, serving, wait_until
from tupper import Sandbox


async def test_a_session_has_one_sandbox_made_when_it_is_needed():
    async with serving() as call:
        assert (await call("list_sandboxes"))["sandboxes"] == []
        first = (await call("run_command", command="echo > /tmp/mark"))["sandbox"]
        [only] = (await call("list_sandboxes"))["sandboxes"]
        assert (only["sandbox"], only["is_default"], only["ends_with_session"]) == (
            first,
            True,
            True,
        )
        fresh = await call("reset_sandbox")
        assert fresh["sandbox"] != first
        assert (await call("run_command", command="ls /tmp/mark"))["exit_code"] != 0
        assert await call("kill_sandbox") | {"notes": []} == {
            "sandbox": fresh["sandbox"], "was_running": True, "notes": []
        }  # fmt: skip
        third = (await call("run_command", command="true"))["sandbox"]
        assert running() == {third}
    assert running() == set()


async def test_a_sandbox_that_ended_is_said_to_be_gone_and_replaced():
    async with serving() as call:
        first = (await call("run_command", command="true"))["sandbox"]
        Sandbox.kill(first)
        for name, arguments in (("run_command", {"command": "true"}), ("read_file", {"path": "a"})):
            text = await call.fails(name, **arguments)
            assert "the next call that names no sandbox gets a new one" in text
            assert (await call("run_command", command="true"))["sandbox"] != first
            first = (await call("list_sandboxes"))["sandboxes"][0]["sandbox"]
            Sandbox.kill(first)


async def test_snapshots_and_forks_go_on_where_the_first_is():
    async with serving() as call:
        first = (await call("run_command", command="echo one > /tmp/f"))["sandbox"]
        saved = await call("snapshot_sandbox")
        await call("run_command", command="echo two > /tmp/f")
        try:
            later = (await call("create_sandbox", snapshot=saved["snapshot"]))["sandbox"]
            fork = (await call("create_sandbox", fork_of=first))["sandbox"]
            for sandbox, content in ((first, "two\n"), (later, "one\n"), (fork, "two\n")):
                done = await call("run_command", command="cat /tmp/f", sandbox=sandbox)
                assert (done["sandbox"], done["stdout"]) == (sandbox, content)
            ended = await call("kill_sandbox", sandbox=fork)
            assert ended["was_running"]
            assert "no sandbox" in await call.fails("run_command", command="true", sandbox=fork)
        finally:
            Sandbox.delete_snapshot(saved["snapshot"])
    assert running() == set()


async def test_what_is_made_on_purpose_is_as_it_was_asked_for():
    async with serving(internet=False) as call:
        made = await call(
            "create_sandbox",
            template="minimal",
            envs={"A": "b"},
            memory_mib=512,
            cpus=1,
            name="mine",
        )
        assert (made["memory_mib"], made["cpus"], made["is_default"]) == (512, 1, True)
        done = await call("run_command", command="echo $A", sandbox="mine")
        assert done["stdout"] == "b\n"
        info = Sandbox.get_info(made["sandbox"])
        assert (info.allow_internet_access, info.idle_timeout) == (False, 3600)


async def test_a_port_is_reachable():
    import httpx2

    async with serving() as call:
        await call("write_file", path="www/a", content="hello")
        await call("run_command", command="exec busybox httpd -f -p 8000 -h www", background=True)
        await call("run_command", command="until wget -qO- 127.0.0.1:8000/a; do :; done")
        port = await call("expose_port", port=8000)
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(port["url"] + "/a")).text == "hello"


async def test_over_http_each_session_has_its_own_which_ends_with_it():
    with over_http() as url:
        async with Client(url, mode="legacy") as first, Client(url, mode="legacy") as second:
            one = await Caller(first)("run_command", command="true")
            other = await Caller(second)("run_command", command="true")
            assert one["sandbox"] != other["sandbox"]
            text = await Caller(second).fails("run_command", command="true", sandbox=one["sandbox"])
            assert "no sandbox" in text
        wait_until(lambda: running() == set(), "the sandboxes end with their sessions")


async def test_over_http_without_sessions_a_sandbox_is_named():
    with over_http() as url:
        async with Client(url) as client:
            call = Caller(client)
            text = await call.fails("run_command", command="true")
            assert "create_sandbox" in text
            made = (await call("create_sandbox"))["sandbox"]
            begun = await call(
                "run_command", command="echo hi; sleep 60", background=True, sandbox=made
            )
            async with Client(url) as later:
                call = Caller(later)
                seen = await call(
                    "poll_command", command_id=begun["command_id"], stream="stdout", start=0
                )
                assert seen["sandbox"] == made
                assert (await call("kill_command", command_id=begun["command_id"]))["was_running"]
        assert running() == {made}
    wait_until(lambda: running() == set(), "the sandboxes end with the server")


async def test_over_http_the_token_is_asked_for():
    import httpx2

    with over_http(token="secret") as url:
        async with httpx2.AsyncClient(trust_env=False) as plain:
            assert (await plain.post(url, json={})).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        async with httpx2.AsyncClient(trust_env=False, headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport) as client:
                assert (await client.list_tools()).tools


@pytest.mark.parametrize("options", [{"sandbox": "nope"}, {"template": "nope"}])
async def test_a_server_that_cannot_make_a_sandbox_says_why(options):
    async with serving(**options) as call:
        assert "nope" in await call.fails("run_command", command="true")
