"""Commands that outlive the call that began them."""

import pytest
from agents.sandbox.errors import ExecTransportError, PtySessionNotFoundError

from tupper import AsyncSandbox
from tupper.integrations.openai_agents import TupperSandboxClient


@pytest.fixture
async def session():
    client = TupperSandboxClient()
    made = await client.create()
    await made.start()
    yield made
    await made.aclose()
    await client.delete(made)


async def until(session, update, text):
    """All output until a text is in it."""
    said = update.output
    while text not in said:
        assert update.process_id is not None, said
        update = await session.pty_write_stdin(session_id=update.process_id, chars="")
        said += update.output
    return said, update


async def to_its_end(session, update):
    """What it writes from now on, and its exit code."""
    said = b""
    while update.process_id is not None:
        update = await session.pty_write_stdin(session_id=update.process_id, chars="")
        said += update.output
    return said, update.exit_code


async def test_a_command_that_is_quick(session):
    update = await session.pty_exec_start("pwd; echo err >&2; exit 3")
    assert (update.process_id, update.exit_code) == (None, 3)
    assert sorted(update.output.split()) == [b"/workspace", b"err"]


async def test_a_command_that_takes_longer_than_the_call(session):
    command = "echo begun; until [ -e go ]; do sleep 0.1; done; echo done"
    update = await session.pty_exec_start(command, yield_time_s=0.25)
    assert update.exit_code is None
    assert 1000 <= update.process_id < 100_000
    said, update = await until(session, update, b"begun\n")
    await session.exec("touch go")
    rest, code = await to_its_end(session, update)
    assert (said + rest, code) == (b"begun\ndone\n", 0)


async def test_a_program_in_a_terminal_is_typed_to(session):
    update = await session.pty_exec_start("python3 -q", tty=True, yield_time_s=0.25)
    _, update = await until(session, update, b">>> ")
    number = update.process_id
    update = await session.pty_write_stdin(session_id=number, chars="print(6 * 7, __name__)\n")
    _, update = await until(session, update, b"42 __main__")
    update = await session.pty_write_stdin(session_id=number, chars="\x04", yield_time_s=30)
    assert (update.process_id, update.exit_code) == (None, 0)
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=number, chars="")


async def test_a_terminal_is_interrupted(session):
    update = await session.pty_exec_start("echo begun; sleep 1000", tty=True, yield_time_s=0.25)
    _, update = await until(session, update, b"begun\r\n")
    stopped = await session.pty_write_stdin(
        session_id=update.process_id, chars="\x03", yield_time_s=30
    )
    assert stopped.exit_code == 130


async def test_without_a_terminal_there_is_no_input(session):
    assert (await session.pty_exec_start("cat")).exit_code == 0
    update = await session.pty_exec_start("sleep 1000", yield_time_s=0.25)
    with pytest.raises(RuntimeError, match="tty=true"):
        await session.pty_write_stdin(session_id=update.process_id, chars="x")


async def test_another_user_and_a_program_that_is_not_there(session):
    assert (await session.pty_exec_start("id -un", user="root")).output == b"root\n"
    unknown = await session.pty_exec_start("id", user="nobody-there")
    assert (unknown.process_id, unknown.exit_code) == (None, 126)
    missing = await session.pty_exec_start("no-such-program", shell=False)
    assert (missing.process_id, missing.exit_code) == (None, 127)


async def test_all_are_ended(session):
    for tty in (False, True):
        await session.pty_exec_start("sleep 1234", tty=tty, yield_time_s=0.25)
    await session.pty_terminate_all()
    assert (await session.exec("pgrep -f 'sleep 123[4]'")).exit_code == 1


async def test_the_sandbox_ends_meanwhile(session):
    update = await session.pty_exec_start("sleep 1000", yield_time_s=0.25)
    await AsyncSandbox.kill(session.state.sandbox_id)
    _, code = await to_its_end(session, update)
    assert code == 255
    with pytest.raises(ExecTransportError):
        await session.pty_exec_start("true")
