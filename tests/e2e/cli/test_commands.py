"""``exec`` and ``run``: streams, standard input, exit codes, interruption."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tupper import Sandbox


def running():
    pages, found = Sandbox.list(), []
    while pages.has_next:
        found += [info.sandbox_id for info in pages.next_items()]
    return set(found)


@pytest.fixture
def held_open():
    """A standard input that nobody writes to and nobody closes, like that of a CI job."""
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def test_tb055_an_open_stdin_does_not_keep_a_finished_command(tupper, box, held_open):
    ended = tupper("exec", box, "--", "echo", "hi", stdin=held_open, limit_s=20)
    assert (ended.code, ended.out) == (0, "hi\n")


def test_tb055_a_time_limit_fires_while_stdin_is_open(tupper, box, held_open):
    ended = tupper("exec", "--timeout", "3", box, "--", "sleep", "60", stdin=held_open, limit_s=20)
    assert ended.code == 124
    assert "3 s" in ended.err


def test_tb055_a_time_limit_fires_with_interactive_stdin(tupper, box, held_open):
    ended = tupper("exec", "-i", "--timeout", "2", box, "--", "cat", stdin=held_open, limit_s=20)
    assert ended.code == 124


def test_tb055_a_loop_keeps_its_input(box):
    loop = f'while read l; do {sys.executable} -m tupper exec {box} -- echo "got $l"; done'
    done = subprocess.run(
        ["sh", "-c", loop], input=b"1\n2\n3\n", capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"got 1\ngot 2\ngot 3\n"


def test_tb055_interactive_passes_stdin_on(tupper, box):
    assert tupper("exec", "-i", box, "--", "cat", given=b"data").out == "data"


def test_tb103_proxies_of_the_user_do_not_get_between(tupper, box):
    dead = "http://127.0.0.1:1"
    env = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"), dead)
    env |= {"NO_PROXY": "10.0.0.0/8,::1,[", "no_proxy": "10.0.0.0/8,::1,["}
    ended = tupper("exec", box, "--", "echo", "hi", env=env)
    assert (ended.code, ended.out, ended.err) == (0, "hi\n", "")


@pytest.mark.parametrize("code", [0, 1, 3, 42, 125, 255])
def test_the_commands_code_is_ours(tupper, box, code):
    assert tupper("exec", box, "--", "sh", "-c", f"exit {code}").code == code


def test_a_signal_is_128_and_its_number(tupper, box):
    assert tupper("exec", box, "--", "sh", "-c", "kill -KILL $$").code == 137


def test_no_such_program_is_127(tupper, box):
    assert tupper("exec", box, "--", "no-such-program-here").code == 127


def test_no_such_sandbox_is_125_with_a_hint(tupper):
    ended = tupper("exec", "inothinglikethis", "--", "true")
    assert ended.code == 125
    assert ended.err.startswith("error: ")
    assert "hint: " in ended.err


def test_words_stay_as_they_are_and_one_word_is_a_line(tupper, box):
    assert tupper("exec", box, "--", "printf", "%s|", "a b", "$HOME", "*").out == "a b|$HOME|*|"
    assert tupper("exec", box, "--", "echo one; echo two >&2").out == "one\n"


def test_options_after_the_sandbox_belong_to_the_command(tupper, box):
    assert tupper("exec", box, "echo", "-n", "--json", "-i").out == "--json -i"


def test_streams_are_apart_and_exact(tupper, box):
    ended = tupper("exec", box, "--", "sh", "-c", "printf out; printf err >&2")
    assert (ended.out, ended.err) == ("out", "err")


def test_bytes_come_through_unchanged(tupper_raw, box):
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)"
    process = tupper_raw("exec", box, "--", "python3", "-c", program)
    out, _ = process.communicate(timeout=60)
    assert out == bytes(range(256)) * 4096


def test_bytes_go_in_unchanged(tupper_raw, box):
    data = os.urandom(3 * 1024 * 1024)
    process = tupper_raw("exec", "-i", box, "--", "cat")
    out, _ = process.communicate(data, timeout=60)
    assert out == data


def test_output_comes_while_the_command_runs(tupper_raw, box):
    process = tupper_raw("exec", "-i", box, "--", "sh", "-c", "echo first; read x; echo second")
    assert process.stdout.readline() == b"first\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"second\n"
    assert process.wait(30) == 0


def test_a_reader_that_leaves_ends_the_command(tupper_raw, sandbox, box):
    process = tupper_raw("exec", box, "--", "sh", "-c", "exec yes tb-left")
    assert process.stdout.readline() == b"tb-left\n"
    process.stdout.close()
    assert process.wait(30) == 141
    assert sandbox.commands.run("pgrep -fc '^yes tb-left' || true").stdout == "0\n"


def test_user_directory_and_environment(tupper, box):
    line = 'echo $(id -un) $PWD "$A"'
    ended = tupper("exec", "-u", "root", "-w", "/tmp", "-e", "A=b c", box, "--", line)
    assert ended.out == "root /tmp b c\n"


def test_detached_commands_go_on(tupper, sandbox, box):
    pid = int(tupper("exec", "-d", box, "--", "sleep", "77").out)
    assert pid in {process.pid for process in sandbox.commands.list()}
    sandbox.commands.kill(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_exec_ends_its_command(tupper_raw, sandbox, box, number):
    process = tupper_raw("exec", box, "--", "sh", "-c", "echo up; exec sleep 4242")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(30) in {130, 143}
    assert sandbox.commands.run("pgrep -fc '^sleep 4242' || true").stdout == "0\n"


def test_run_prints_and_leaves_nothing(tupper):
    before = running()
    ended = tupper("run", "--", "python3", "-c", "print(1)")
    assert (ended.code, ended.out) == (0, "1\n")
    assert running() == before


def test_run_returns_the_commands_code_and_leaves_nothing(tupper):
    before = running()
    assert tupper("run", "--", "sh", "-c", "exit 7").code == 7
    assert tupper("run", "--timeout", "1", "--", "sleep", "60").code == 124
    assert running() == before


def test_an_interrupted_run_leaves_nothing(tupper_raw):
    before = running()
    process = tupper_raw("run", "--", "sh", "-c", "echo up; exec sleep 60")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert running() == before


def test_a_killed_run_leaves_nothing(tupper_raw):
    before = running()
    process = tupper_raw("run", "--", "sh", "-c", "echo up; exec sleep 60")
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait(10)
    gone = threading.Event()
    for _ in range(300):
        if running() == before:
            gone.set()
            break
        gone.wait(0.1)
    assert gone.is_set()


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("no-such-program", 127, "no-such-program"),
        ("exit 3", 3, ""),
        ("kill -9 $$", 137, "tupper: signal: killed\n"),
    ],
)
def test_a_code_that_says_it_all_is_not_explained(tupper, box, line, code, why):
    ended = tupper("exec", box, "--", line)
    assert ended.code == code
    assert why in ended.err if why else ended.err == ""


def test_run_of_an_unknown_template_is_ours(tupper):
    ended = tupper("run", "--template", "no-such-template", "--", "true")
    assert ended.code == 125
    assert "no-such-template" in ended.err


def test_run_passes_stdin_limits_and_no_network(tupper):
    ended = tupper(
        "run",
        "-i",
        "--no-internet",
        "--memory",
        "256m",
        "--cpus",
        "1",
        "--",
        "sh",
        "-c",
        "cat; ip -o link",
        given=b"in\n",
    )
    assert ended.code == 0
    assert ended.out.startswith("in\n")
