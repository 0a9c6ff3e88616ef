"""What agents do to adapters by accident: the parts that all adapters use, in real sandboxes."""

import asyncio
import signal
import subprocess
import sys

import pytest

from e2e.mcp.serving import running, wait_until
from tupper import AsyncSandbox, SandboxNotFoundException
from tupper.integrations import _files, _halves, _shell, _terminals

VANISHES = """
import asyncio
from tupper import AsyncSandbox
from tupper.integrations import _shell

async def main():
    sandbox = await AsyncSandbox.create("minimal", **_shell.OURS)
    run = asyncio.create_task(_shell.arun(sandbox, "echo > /tmp/begun; exec sleep 1000"))
    await _shell.arun(sandbox, "until [ -e /tmp/begun ]; do :; done")
    print(sandbox.sandbox_id, flush=True)
    await run

asyncio.run(main())
"""


@pytest.fixture
async def there(sandbox):
    """The module's sandbox for asyncio."""
    attached = await AsyncSandbox.connect(sandbox.sandbox_id)
    yield attached
    await attached.close()


async def test_fifty_megabytes_of_output_come_whole_or_are_said_to_be_cut(there):
    command = "head -c 50000000 /dev/zero | tr '\\0' x"
    whole = await _shell.arun(there, command)
    assert (whole.exit_code, len(whole.stdout), whole.dropped_bytes) == (0, 50_000_000, 0)
    cut = await _shell.arun(there, command, max_output_bytes=1_000_000)
    assert cut.stdout.startswith("x" * 1000)
    assert len(cut.stdout.strip("x")) < 100  # it says where something is missing
    assert cut.stdout.count("x") + cut.dropped_bytes in range(50_000_000, 50_000_100)


async def test_output_that_is_no_utf_8_is_text_and_files_stay_what_they_are(there):
    said = await _shell.arun(there, "printf 'a\\377\\303b'; printf '\\200' >&2")
    assert (said.stdout, said.stderr) == ("a\ufffd\ufffdb", "\ufffd")
    data = bytes(range(256)) * 1000
    await _files.write(there, "/tmp/binary", data)
    assert await _files.read(there, "/tmp/binary") == data


@pytest.mark.parametrize("stdin", [None, "given"])
async def test_a_command_longer_than_one_argument_may_be(there, stdin):
    text = "x" * 300_000
    command = f"printf %s {text} | wc -c; cat; pwd; exit 5"
    done = await _shell.arun(there, command, cwd="/tmp", stdin=stdin)
    assert done.stdout.replace("given", "").split() == ["300000", "/tmp"]
    assert done.exit_code == 5
    assert ".tupper" not in (await _shell.arun(there, "ls -a /tmp")).stdout


def test_the_other_half_takes_such_a_command_too(sandbox):
    done = _shell.run(sandbox, f"printf %s {'y' * 200_000} | wc -c")
    assert done.stdout.strip() == "200000"


async def test_a_caller_that_gives_up_ends_its_command(there):
    begun = asyncio.create_task(_shell.arun(there, "echo > /tmp/begun; exec sleep 1234"))
    await _shell.arun(there, "until [ -e /tmp/begun ]; do :; done")
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    await _shell.arun(there, "while pgrep -f 'sleep 123[4]'; do :; done")


def test_a_program_that_vanishes_in_a_call_leaves_nothing():
    before = running()
    with subprocess.Popen([sys.executable, "-c", VANISHES], stdout=subprocess.PIPE) as program:
        assert program.stdout.readline().decode().strip() in running() - before
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: running() == before, "the sandbox ends with the program")


async def test_two_clients_on_one_sandbox(there, sandbox):
    other = await AsyncSandbox.connect(sandbox.sandbox_id)
    try:
        words = [f"{n}" * 10_000 for n in range(8)]
        runs = [_shell.arun(side, f"echo {word}") for word in words for side in (there, other)]
        said = [outcome.stdout for outcome in await asyncio.gather(*runs)]
        assert said == [f"{word}\n" for word in words for _ in (there, other)]
        await _files.write(there, "/tmp/shared", b"one")
        assert await _files.read(other, "/tmp/shared") == b"one"
    finally:
        await other.close()


async def test_an_unknown_sandbox_and_an_unknown_user(there):
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect("i" + "0" * 20)
    unknown = await _shell.arun(there, "true", user="nobody-there")
    assert unknown.exit_code == _shell.NOT_ALLOWED
    assert "nobody-there" in unknown.stderr


async def test_terminals_of_bytes_that_are_no_text_and_of_no_program(there):
    terminals = _terminals.Terminals(there)
    none = await terminals.start(["no-such-program"], 60, has_terminal=False)
    assert (none.number, none.exit_code) == (None, 127)
    odd = ["printf", "\\303\\251\\377"]
    seen = await terminals.start(odd, 60, has_terminal=True)
    assert seen.exit_code == 0
    assert "é\ufffd" in seen.text
    with pytest.raises(KeyError):
        await terminals.type(1000, "x", 1)


def test_what_waits_for_a_loop_is_refused_by_the_other_half():
    with pytest.raises(RuntimeError, match="waits for a loop"):
        _halves.at_once(asyncio.sleep(0))
