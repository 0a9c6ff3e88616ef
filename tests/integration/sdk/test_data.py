"""Commands, files, trees: every body runs with both halves."""

import io
import os
import signal
import time

import pytest

from integration.sdk.waiting import wait_for
from tupper import (
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    SandboxNotRunningException,
    SandboxUnreachableException,
    TimeoutException,
)


def test_a_command_and_its_result(sbx):
    seen = []
    result = sbx.commands.run(
        "echo out; echo err >&2; echo $A", envs={"A": "b"}, cwd="/tmp", on_stdout=seen.append
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("out\nb\n", "err\n", 0)
    assert "".join(seen) == "out\nb\n"
    assert sbx.commands.run(["printf", "%s|", "a b", "$c"]).stdout == "a b|$c|"


def test_tb001_a_child_in_the_background_delays_nothing(sbx):
    assert sbx.commands.run("sleep 30 & echo started", timeout=20).stdout == "started\n"
    assert sbx.commands.run("echo second").stdout == "second\n"


def test_tb003_much_output(sbx):
    result = sbx.commands.run("seq 1 2000000")
    assert len(result.stdout) == 14888896
    assert result.stdout.endswith("\n2000000\n")
    cut = sbx.commands.run("seq 1 200000", max_output_bytes=100_000)
    assert cut.stdout.startswith("1\n2\n")
    assert cut.stdout.endswith("\n200000\n")
    assert f"[tupper: {cut.dropped_bytes} bytes of output dropped here]" in cut.stdout


def test_output_that_nobody_wants(sbx):
    result = sbx.commands.run("seq 1 1000", retain_output=False)
    assert (result.stdout, result.exit_code) == (None, 0)


def test_tb005_no_input(sbx):
    assert sbx.commands.run("cat; read x; echo rc=$?", timeout=10).stdout == "rc=1\n"


def test_tb007_and_tb057_time_limits(sbx):
    for script in ("sleep 60", "yes", "trap '' TERM; sleep 60"):
        with pytest.raises(TimeoutException, match="time limit of 1 s"):
            sbx.commands.run(script, timeout=1)
    handle = sbx.commands.run("sleep 61", background=True, timeout=1)
    with pytest.raises(TimeoutException):
        handle.wait()


def test_tb011_exit_codes(sbx):
    for script, code in (("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
        with pytest.raises(CommandExitException) as caught:
            sbx.commands.run(script)
        assert caught.value.exit_code == code
    assert "terminated" in caught.value.error
    assert caught.value.signal == 15


def test_tb013_a_long_command(sbx):
    assert sbx.commands.run("x='" + "a" * 200000 + "'; echo ${#x}").stdout == "200000\n"


@pytest.mark.parametrize(("argv", "code"), [(["dsfsdfsf"], 127), (["/etc/passwd"], 126)])
def test_tb019_what_cannot_start(sbx, argv, code):
    for background in (False, True):
        with pytest.raises(CommandExitException, match=argv[0]) as caught:
            sbx.commands.run(argv, background=background)
        assert caught.value.exit_code == code


def test_unknown_directories_users_and_processes(sbx):
    with pytest.raises(InvalidArgumentException, match="/no/where"):
        sbx.commands.run("true", cwd="/no/where")
    with pytest.raises(Exception, match="nobody-of-that-name") as caught:
        sbx.commands.run("true", user="nobody-of-that-name")
    assert caught.type.__name__ == "AuthenticationException"
    with pytest.raises(NotFoundException, match="999999"):
        sbx.commands.connect(999999)
    assert sbx.commands.kill(999999) is False
    with pytest.raises(InvalidArgumentException, match="NUL"):
        sbx.commands.run("a\0b")


def test_background_list_kill(sbx, tmp_path):
    mark = tmp_path / "mark"
    handle = sbx.commands.run(f"echo first; touch {mark}; exec sleep 50", background=True)
    wait_for(mark.exists)
    assert [process.pid for process in sbx.commands.list()] == [handle.pid]
    assert sbx.commands.list()[0].args[:2] == ["-l", "-c"]
    assert handle.kill() is True
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert (caught.value.exit_code, caught.value.stdout) == (137, "first\n")
    assert handle.exit_code == 137
    assert handle.kill() is False


def test_tb053_input_larger_than_pipes(sbx):
    data = b"k" * (8 << 20)
    handle = sbx.commands.run("cat", background=True, stdin=True)
    handle.send_stdin(data)
    handle.close_stdin()
    assert len(handle.wait().stdout) == len(data)


def test_tb053_input_that_nobody_reads(sbx):
    handle = sbx.commands.run("sleep 60", background=True, stdin=True)
    with pytest.raises(TimeoutException):
        handle.send_stdin(b"k" * (8 << 20), request_timeout=1)
    assert handle.kill()


def test_leaving_and_coming_back(sbx):
    handle = sbx.commands.run("read x; echo got $x", background=True, stdin=True)
    handle.disconnect()
    with pytest.raises(SandboxException, match="disconnected"):
        handle.wait()
    again = sbx.commands.connect(handle.pid)
    again.send_stdin("it\n")
    assert again.wait().stdout == "got it\n"
    assert sbx.commands.connect(handle.pid).wait().exit_code == 0


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, (4 << 20) + 1, (32 << 20) + 1])
def test_tb027_files_of_every_size(sbx, size, tmp_path):
    data = os.urandom(size)
    written = sbx.files.write("f", data)
    assert (written.name, written.type) == ("f", FileType.FILE)
    assert sbx.files.read(written.path, format="bytes") == data
    assert b"".join(sbx.files.read(written.path, format="stream")) == data
    assert sbx.files.get_info(written.path).size == size


def test_files_in_every_form(sbx):
    for data in (
        "tëxt",
        "tëxt".encode(),
        bytearray("tëxt".encode()),
        io.BytesIO("tëxt".encode()),
        io.StringIO("tëxt"),
        iter(["të".encode(), b"xt"]),
    ):
        path = sbx.files.write("form", data).path
        assert sbx.files.read(path) == "tëxt"
    zipped = sbx.files.write("zip", "z" * 100000, gzip=True).path
    assert sbx.files.read(zipped, gzip=True) == "z" * 100000
    assert sbx.files.read(zipped) == "z" * 100000
    with pytest.raises(InvalidArgumentException, match="int"):
        sbx.files.write("form", 3)


def test_many_files(sbx):
    files = [{"path": f"many/{n}", "data": str(n)} for n in range(10)]
    assert [info.name for info in sbx.files.write_files(files)] == [str(n) for n in range(10)]
    assert sbx.files.write_files([]) == []
    with pytest.raises(InvalidArgumentException, match="twice"):
        sbx.files.write_files([files[0], files[0]])


def test_directories(sbx):
    base = sbx.files.write("base/a/f", "x").path.removesuffix("/a/f")
    assert sbx.files.make_dir(f"{base}/d") is True
    assert sbx.files.make_dir(f"{base}/d") is False
    assert [entry.name for entry in sbx.files.list(base)] == ["a", "d"]
    assert [entry.name for entry in sbx.files.list(base, depth=2)] == ["a", "f", "d"]
    assert sbx.files.rename(f"{base}/a/f", f"{base}/g").path == f"{base}/g"
    assert sbx.files.exists(f"{base}/a/f") is False
    sbx.files.remove(base)
    sbx.files.remove(base)
    assert sbx.files.exists(base) is False
    for call in (sbx.files.read, sbx.files.list, sbx.files.get_info):
        with pytest.raises(FileNotFoundException, match="base"):
            call(base)
    with pytest.raises(InvalidArgumentException):
        sbx.files.list("/", depth=0)
    with pytest.raises(InvalidArgumentException, match="NUL"):
        sbx.files.write("a\0b", "x")


def test_tb073_what_is_no_regular_file(sbx, tmp_path):
    assert "processor" in sbx.files.read("/proc/cpuinfo")
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(SandboxException, match="not a regular file"):
            sbx.files.read(path)


def test_trees(sbx, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "f").write_bytes(os.urandom(3 << 20))
    (source / "run").write_text("#!/bin/sh\necho hi\n")
    (source / "run").chmod(0o755)
    (source / ".git").mkdir()
    (source / "link").symlink_to("a/b/f")
    target = str(tmp_path / "inside")
    sbx.files.upload(source, target, exclude=[".git"])
    assert sbx.commands.run(f"cd {target}; ./run; ls -A").stdout == "hi\na\nlink\nrun\n"
    sbx.files.download(target, back)
    assert (back / "a/b/f").read_bytes() == (source / "a/b/f").read_bytes()
    assert os.readlink(back / "link") == "a/b/f"
    assert (back / "run").stat().st_mode & 0o777 == 0o755
    sbx.files.upload(source / "run", f"{target}/one")
    sbx.files.download(f"{target}/one", tmp_path / "one")
    assert (tmp_path / "one").read_text() == (source / "run").read_text()
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        sbx.files.upload(tmp_path / "missing", "/tmp/x")
    with pytest.raises(FileNotFoundException):
        sbx.files.download("/no/where", tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["back", "inside", "one", "source"]


def test_tb037_killed_from_outside(sbx, control):
    handle = sbx.commands.run("sleep 600", background=True, timeout=0)
    process = control.machines[sbx.sandbox_id].process
    os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(SandboxNotRunningException, match="was killed or reached its end of life"):
        handle.wait()
    with pytest.raises(SandboxNotRunningException):
        sbx.commands.run("echo x", timeout=20)
    with pytest.raises(SandboxNotRunningException):
        sbx.files.read("/etc/hostname")
    assert sbx.is_running() is False


def test_tb037_killed_by_another_client(sbx, control):
    handle = sbx.commands.run("sleep 600", background=True, timeout=0)
    control.end(control.machines[sbx.sandbox_id], "idle_timeout")
    with pytest.raises(SandboxNotRunningException, match="idle timeout"):
        handle.wait()
    assert sbx.is_running() is False


def test_tb037_stopped(sbx, control):
    handle = sbx.commands.run("sleep 600", background=True, timeout=0)
    process = control.machines[sbx.sandbox_id].process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(SandboxException):
            sbx.commands.run("echo x", timeout=2)
        with pytest.raises(SandboxUnreachableException, match="unreachable"):
            handle.wait()
        assert time.monotonic() - start < 40
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert sbx.commands.run("echo back").stdout == "back\n"


def test_tb037_silence_is_no_trouble(sbx):
    assert sbx.commands.run("sleep 13; echo done", timeout=0).stdout == "done\n"
