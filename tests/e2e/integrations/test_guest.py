"""What the adapters have in common, in a sandbox: files as its user sees them, commands with input."""

import asyncio
import errno

import pytest

from tupper import AsyncSandbox
from tupper.integrations import _files, _shell


@pytest.fixture
async def there(sandbox):
    """The module's sandbox for asyncio, and a directory in it that is the user's."""
    attached = await AsyncSandbox.connect(sandbox.sandbox_id)
    made = await _shell.arun(attached, ["mktemp", "-d"])
    yield attached, made.stdout.strip()
    await attached.close()


async def test_bytes_and_the_directories_that_lead_to_them(there):
    sandbox, folder = there
    path = f"{folder}/a/b"
    await _files.write(sandbox, path, b"\x00\xff")
    assert await _files.read(sandbox, path) == b"\x00\xff"
    assert (await _shell.arun(sandbox, ["stat", "-c", "%U", path])).stdout == "user\n"


@pytest.mark.parametrize(
    ("prepare", "name", "reading", "writing"),
    [
        ("true", "x", errno.ENOENT, None),
        ("mkdir x", "x", errno.EISDIR, errno.EISDIR),
        ("touch x", "x/y", errno.ENOTDIR, errno.ENOTDIR),
        ("touch x; chmod 000 x", "x", errno.EACCES, errno.EACCES),
        ("touch x; chmod 444 x", "x", None, errno.EACCES),
        ("mkdir x; chmod 000 x", "x/y", errno.EACCES, errno.EACCES),
        ("mkdir x; chmod 555 x", "x/y", errno.ENOENT, errno.EACCES),
        ("mkfifo x", "x", errno.EINVAL, errno.EINVAL),
        ("ln -s nowhere x", "x", errno.ENOENT, None),
        ("echo there > y; ln -s y x", "x", None, None),
    ],
)
async def test_what_python_would_say(there, prepare, name, reading, writing):
    sandbox, folder = there
    assert (await _shell.arun(sandbox, f"cd {folder}; {prepare}")).exit_code == 0
    path = f"{folder}/{name}"
    assert await error_of(_files.read(sandbox, path)) == (reading and (reading, path))
    assert await error_of(_files.write(sandbox, path, b"")) == (writing and (writing, path))


async def test_a_path_that_is_not_absolute_is_refused(there):
    assert await error_of(_files.read(there[0], "x")) == (errno.EINVAL, "x")


async def error_of(call):
    """The number and the path of the error that a call raises; None if it raises none."""
    try:
        await call
    except OSError as error:
        return error.errno, error.filename
    return None


async def test_directories_and_links(there):
    sandbox, folder = there
    await _files.make_dir(sandbox, f"{folder}/a/b")
    await _files.make_dir(sandbox, f"{folder}/a/b")
    await _files.write(sandbox, f"{folder}/file", b"")
    for path, expected in ((f"{folder}/file", errno.EEXIST), (f"{folder}/file/x", errno.ENOTDIR)):
        assert await error_of(_files.make_dir(sandbox, path)) == (expected, path)
    await _shell.arun(sandbox, f"cd {folder}; ln -s a/b link; ln -s loop loop")
    assert await _files.realpath(sandbox, f"{folder}/link/x/y") == f"{folder}/a/b/x/y"
    await _files.remove(sandbox, f"{folder}/link")
    await _files.remove(sandbox, f"{folder}/loop")
    assert await sandbox.files.exists(f"{folder}/a/b")
    await _files.remove(sandbox, f"{folder}/a")
    missing = f"{folder}/a"
    assert await error_of(_files.remove(sandbox, missing)) == (errno.ENOENT, missing)
    assert await error_of(_files.remove(sandbox, "/etc/passwd")) == (errno.EACCES, "/etc/passwd")


async def test_another_user(there):
    sandbox, folder = there
    await _files.write(sandbox, f"{folder}/x", b"", "root")
    assert (await _shell.arun(sandbox, ["stat", "-c", "%U", f"{folder}/x"])).stdout == "root\n"
    assert await _files.read(sandbox, "/etc/shadow", "root")
    assert (await error_of(_files.read(sandbox, "/etc/shadow")))[0] == errno.EACCES


@pytest.mark.parametrize("command", [["wc", "-c"], ["head", "-c", "1"], ["true"]])
async def test_input_of_any_size_to_a_command_that_takes_it_or_not(there, command):
    outcome = await _shell.arun(there[0], command, stdin=b"7" * 3_000_000)
    said = {"wc": "3000000\n", "head": "7", "true": ""}[command[0]]
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, said, "")


async def test_a_command_with_input_that_is_cancelled_is_ended(there):
    sandbox, folder = there
    command = ["sh", "-c", f"echo $$ > {folder}/pid; cat; sleep 1000"]
    task = asyncio.create_task(_shell.arun(sandbox, command, stdin="x"))
    while (await _shell.arun(sandbox, ["test", "-s", f"{folder}/pid"])).exit_code != 0:
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = (await sandbox.files.read(f"{folder}/pid")).strip()
    assert (await _shell.arun(sandbox, ["kill", "-0", pid])).exit_code == 1


def test_errors_among_the_output_in_their_order(sandbox):
    command = "for n in 1 2 3; do echo out; echo err >&2; done; exit 4"
    outcome = _shell.run(sandbox, _shell.together(command))
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (4, "out\nerr\n" * 3, "")


def test_a_time_limit(sandbox):
    outcome = _shell.run(sandbox, "echo so far; sleep 1000", timeout_s=1)
    assert (outcome.timed_out, outcome.stdout) == (True, "so far\n")
