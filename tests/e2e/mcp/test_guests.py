"""Sandboxes that were there before the server, and clients that meet in one."""

from e2e.mcp.serving import serving


async def test_two_clients_on_one_sandbox_that_was_there_before(sandbox):
    options = {"sandbox": sandbox.sandbox_id, "template": None}
    async with serving(**options) as one, serving(**options) as other:
        await one("write_file", path="/tmp/shared", content="a")
        assert (await other("read_file", path="/tmp/shared"))["content"] == "a"
        begun = await one("run_command", command="sleep 1000", background=True)
        assert "no command" in await other.fails("poll_command", command_id=begun["command_id"])
        for call in (one, other):
            assert "not ended" in await call.fails("kill_sandbox")
            assert "not ended" in await call.fails("reset_sandbox")
    assert sandbox.is_running()
    assert "sleep 1000" not in sandbox.commands.run("ps x").stdout


async def test_one_client_does_not_reach_what_another_has_unless_the_user_says_so(sandbox):
    name = sandbox.sandbox_id
    async with serving() as call:
        assert "no sandbox" in await call.fails("run_command", command="true", sandbox=name)
        assert (await call("list_sandboxes"))["sandboxes"] == []
    async with serving(every_sandbox=True) as call:
        assert (await call("run_command", command="true", sandbox=name))["sandbox"] == name
        assert name in {one["sandbox"] for one in (await call("list_sandboxes"))["sandboxes"]}
    assert sandbox.is_running()
