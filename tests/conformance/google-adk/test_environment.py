"""What ADK asks of an environment and of a code executor, call by call."""

from pathlib import Path

import pytest
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File

from tupper import Sandbox, SandboxNotFoundException
from tupper.integrations.google_adk import TupperCodeExecutor, TupperEnvironment


@pytest.fixture
async def environment():
    made = TupperEnvironment(envs={"GREETING": "hello"})
    await made.initialize()
    yield made
    await made.close()


async def test_initialize_and_close_may_be_called_again():
    environment = TupperEnvironment()
    with pytest.raises(RuntimeError, match="initialize"):
        await environment.execute("true")
    await environment.close()
    await environment.initialize()
    first = environment.sandbox.sandbox_id
    await environment.initialize()
    assert environment.sandbox.sandbox_id == first
    assert environment.is_initialized
    await environment.close()
    await environment.close()
    assert not environment.is_initialized
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(first)


async def test_a_command(environment):
    done = await environment.execute("pwd; echo $GREETING; echo err >&2; exit 3")
    assert done.stdout == f"{environment.working_dir}\nhello\n"
    assert (done.stderr, done.exit_code, done.timed_out) == ("err\n", 3, False)


async def test_a_time_limit_is_a_result_with_what_was_written(environment):
    done = await environment.execute("echo before; sleep 60", timeout=1)
    assert (done.stdout, done.timed_out) == ("before\n", True)


async def test_files(environment):
    await environment.write_file(Path("a/b.txt"), "text")
    await environment.write_file(Path("/tmp/c.bin"), b"\x00\xff")
    assert await environment.read_file(environment.working_dir / "a/b.txt") == b"text"
    assert await environment.read_file(Path("/tmp/c.bin")) == b"\x00\xff"
    with pytest.raises(FileNotFoundError):
        await environment.read_file(Path("missing"))
    with pytest.raises(PermissionError):
        await environment.read_file(Path("/etc/shadow"))


@pytest.fixture(scope="module")
def executor():
    made = TupperCodeExecutor(timeout_seconds=2)
    yield made
    made.close()


def test_code_with_files(executor):
    code = "import csv; print(sum(int(r[0]) for r in csv.reader(open('in.csv'))))\n"
    code += "open('out.csv', 'w').write('7,8')"
    given = CodeExecutionInput(code=code, input_files=[File("in.csv", b"1\n2\n", "text/csv")])
    done = executor.execute_code(None, given)
    assert (done.stdout, done.stderr, done.exit_code) == ("3\n", "", 0)
    assert done.output_files == [File("out.csv", b"7,8", "text/csv")]


def test_code_that_fails(executor):
    done = executor.execute_code(None, CodeExecutionInput(code="raise ValueError('no')"))
    assert done.exit_code == 1
    assert "ValueError: no" in done.stderr


def test_code_that_does_not_end(executor):
    done = executor.execute_code(None, CodeExecutionInput(code="while True: pass"))
    assert done.exit_code == 124
    assert "ended after 2 s" in done.stderr
