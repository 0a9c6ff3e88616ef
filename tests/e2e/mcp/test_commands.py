"""Commands and code of a model, in real sandboxes."""

import asyncio

import pytest

from e2e.mcp.serving import serving


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_command_gives_its_output_and_its_exit_code(mode):
    async with serving(mode) as call:
        done = await call("run_command", command="echo out; echo err >&2; cat; exit 3")
        assert (done["stdout"], done["stderr"]) == ("out\n", "err\n")
        assert (done["status"], done["exit_code"], done["notes"]) == ("exited", 3, [])
        done = await call(
            "run_command", command="echo $X $(whoami) $PWD", cwd="/tmp", envs={"X": "é"}, user="root"
        )  # fmt: skip
        assert done["stdout"] == "é root /tmp\n"
        done = await call("run_command", command="kill -9 $$")
        assert done["exit_code"] == 137
        assert "killed" in done["notes"][0]


async def test_bad_commands_are_told_apart():
    async with serving() as call:
        assert "/nope" in await call.fails("run_command", command="true", cwd="/nope")
        assert "nobodyx" in await call.fails("run_command", command="true", user="nobodyx")
        assert "NUL" in await call.fails("run_command", command="a\0b")
        assert (await call("run_command", command="nothing-such"))["exit_code"] == 127


async def test_a_time_limit_ends_all_of_it_and_keeps_the_output():
    async with serving() as call:
        done = await call("run_command", command="echo begun; sleep 1000 & sleep 1000", timeout_s=4)
        assert (done["status"], done["exit_code"], done["stdout"]) == ("timed_out", None, "begun\n")
        assert "4 s" in done["notes"][0]
        assert "sleep" not in (await call("run_command", command="ps"))["stdout"]


async def test_a_command_in_the_background_is_polled_and_ended():
    async with serving() as call:
        begun = await call(
            "run_command", command="echo a; read x < /tmp/go; echo b; exit 4", background=True
        )
        assert begun["status"] in ("running", "exited")  # without the pipe, read fails at once
        await call("run_command", command="mkfifo /tmp/pipe")
        begun = await call(
            "run_command", command="echo a; read x < /tmp/pipe; echo b; exit 4", background=True
        )
        seen = begun["stdout"]
        while "a\n" not in seen:
            seen += (await call("poll_command", command_id=begun["command_id"]))["stdout"]
        assert seen == "a\n"
        await call("run_command", command="echo > /tmp/pipe")
        ended = await call("poll_command", command_id=begun["command_id"], wait_s=60)
        assert (ended["status"], ended["exit_code"], ended["stdout"]) == ("exited", 4, "b\n")
        begun = await call("run_command", command="sleep 1000", background=True)
        ended = await call("kill_command", command_id=begun["command_id"])
        assert (ended["was_running"], ended["status"]) == (True, "killed")
        ended = await call("kill_command", command_id=begun["command_id"])
        assert (ended["was_running"], ended["status"]) == (False, "killed")
        assert "sleep" not in (await call("run_command", command="ps"))["stdout"]


async def test_what_is_cut_can_be_read_by_pages():
    async with serving() as call:
        done = await call("run_command", command="seq 1 5000", max_chars=1000)
        assert len(done["stdout"]) < 1200
        assert done["stdout"].startswith("1\n2\n")
        assert done["stdout"].endswith("\n4999\n5000\n")
        [note] = done["notes"]
        assert f"of {done['stdout_size']} characters of stdout" in note
        assert (
            f"poll_command(command_id='{done['command_id']}', stream='stdout', start=250)" in note
        )
        read, start = "", 0
        while start < done["stdout_size"]:
            page = await call(
                "poll_command", command_id=done["command_id"], stream="stdout", start=start,
                max_chars=7000,
            )  # fmt: skip
            read += page["stdout"]
            start += len(page["stdout"])
        assert read == "".join(f"{n}\n" for n in range(1, 5001))


async def test_fifty_megabytes_and_bytes_that_are_no_text():
    async with serving() as call:
        done = await call(
            "run_command", command="head -c 50000000 /dev/zero | tr '\\0' x; printf '\\377\\n' >&2"
        )
        assert (done["stdout_size"], done["stderr"]) == (50_000_000, "\ufffd\n")
        assert "with > FILE, and read_file" in done["notes"][0]
        page = await call(
            "poll_command", command_id=done["command_id"], stream="stdout", start=10_000_000,
            max_chars=100,
        )  # fmt: skip
        assert page["stdout"] == "x" * 100
        assert "are not kept any more" in page["notes"][1]


async def test_a_command_longer_than_one_argument_may_be():
    async with serving() as call:
        text = "x" * 300_000
        done = await call(
            "run_command", command=f"printf %s {text} | wc -c; pwd; exit 5", cwd="/tmp"
        )
        assert (done["stdout"].split(), done["exit_code"]) == (["300000", "/tmp"], 5)
        assert ".tupper" not in (await call("run_command", command="ls -a /tmp"))["stdout"]


async def test_progress_tells_the_last_line():
    told = []

    async def hear(progress, total, message):
        told.append((progress, total, message))

    async with serving() as call:
        await call.client.call_tool(
            "run_command",
            {"command": "echo working; sleep 2.5", "timeout_s": 50},
            progress_callback=hear,
        )
    assert [total for _, total, _ in told] == [50] * len(told)
    assert "working" in [message for *_, message in told]
    assert told == sorted(told)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_that_is_given_up_ends_its_command(mode):
    async with serving(mode) as call:
        await call("run_command", command="mkfifo /tmp/begun")
        given_up = asyncio.create_task(
            call("run_command", command="echo > /tmp/begun; exec sleep 1000")
        )
        await call("run_command", command="read x < /tmp/begun")
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await call("run_command", command="while ps | grep -q 'slee[p] 1000'; do :; done")


async def test_code_keeps_its_variables_and_says_what_it_needs():
    async with serving() as call:
        done = await call("run_code", code="x = 41\nprint('hi')\nx + 1")
        assert (done["stdout"], done["results"], done["error"]) == ("hi\n", [{"text": "42"}], None)
        failed = await call("run_code", code="x / 0")
        assert "ZeroDivisionError" in failed["error"]
        long = await call("run_code", code="print('y' * 100_000)", max_chars=1000)
        assert len(long["stdout"]) < 1100
        assert "are not shown" in long["notes"][0]
        other = (await call("create_sandbox", template="minimal"))["sandbox"]
        text = await call.fails("run_code", code="1", sandbox=other)
        assert "code-interpreter" in text
