"""Commands: what goes wrong with processes, their output, their input and their end."""

import contextlib

import pytest

from e2e.cases.waiting import wait_for
from tupper import CommandExitException, SandboxException, TimeoutException

TREE = 'pgrep -f "http.server 812[3]|sleep 99[89]" | wc -l'


def test_tb001_background_child_keeps_the_pipe(sbx):
    result = sbx.commands.run("sleep 300 & echo started", timeout=20)
    assert (result.exit_code, result.stdout) == (0, "started\n")
    alive = sbx.commands.run('pgrep -fc "^sleep 300"', timeout=20)
    assert alive.stdout == "1\n"
    sbx.commands.run('pkill -f "^sleep 300"')


def test_tb001_async(sbx, in_async):
    async def body(other):
        return await other.commands.run("sleep 301 & echo started", timeout=20)

    assert in_async(sbx, body).stdout == "started\n"
    sbx.commands.run('pkill -f "^sleep 301"')


def test_tb003_output_of_many_megabytes(sbx):
    result = sbx.commands.run("seq 1 2000000", timeout=120)
    assert len(result.stdout) == 14888896
    assert result.stdout.endswith("\n2000000\n")


def test_tb005_stdin_is_empty_unless_asked_for(sbx):
    result = sbx.commands.run("cat; read x; grep foo; echo rc=$?", timeout=10)
    assert (result.exit_code, result.stdout) == (0, "rc=1\n")


def test_tb007_time_limit_ends_the_whole_tree(sbx):
    with pytest.raises(TimeoutException):
        sbx.commands.run("python3 -m http.server 8123 & sleep 999", timeout=2)
    wait_for(lambda: sbx.commands.run(TREE).stdout == "0\n")
    assert sbx.commands.run(
        "exec 3<>/dev/tcp/127.0.0.1/8123 && echo open || echo closed"
    ).stdout == ("closed\n")


def test_tb007_kill_ends_the_whole_tree(sbx):
    handle = sbx.commands.run('bash -c "sleep 998 & sleep 998"', background=True)
    wait_for(lambda: sbx.commands.run(TREE).stdout != "0\n")
    assert handle.kill() is True
    wait_for(lambda: sbx.commands.run(TREE).stdout == "0\n")
    assert handle.kill() is False


def test_tb007_a_child_in_its_own_session_is_ended_too(sbx):
    handle = sbx.commands.run(
        "setsid sleep 998 >/dev/null 2>&1 & (setsid setsid sleep 998 &) ; sleep 998",
        background=True,
    )
    wait_for(lambda: sbx.commands.run('pgrep -f "^sleep 998" | wc -l').stdout == "3\n")
    handle.kill()
    wait_for(lambda: sbx.commands.run(TREE).stdout == "0\n")


def test_setsid_stays_in_the_foreground(sbx):
    """setsid(1) forks, and is over at once, where it leads a process group."""
    with pytest.raises(CommandExitException) as ended:
        sbx.commands.run("setsid sh -c 'sleep 0.5; echo done; exit 3'", timeout=60)
    assert (ended.value.exit_code, ended.value.stdout) == (3, "done\n")
    assert sbx.commands.run("cd /tmp && setsid sh -c 'sleep 0.5; pwd'").stdout == "/tmp\n"
    assert sbx.commands.run(["setsid", "sh", "-c", "sleep 0.5; echo done"]).stdout == "done\n"
    assert sbx.commands.run("sudo setsid sh -c 'sleep 0.5; id -u'").stdout == "0\n"


@pytest.mark.parametrize("how", ["kill", "timeout"])
def test_tb007_a_command_in_its_own_session_is_ended(sbx, how):
    inner = "import subprocess as s; s.Popen(['sleep', '998']); s.run(['sleep', '999'])"
    command = f'setsid python3 -c "{inner}"'
    if how == "timeout":
        with pytest.raises(TimeoutException):
            sbx.commands.run(command, timeout=5)
    else:
        handle = sbx.commands.run(command, background=True)
        wait_for(lambda: sbx.commands.run('pgrep -f "^sleep 99" | wc -l').stdout == "2\n")
        assert handle.kill() is True
    wait_for(lambda: sbx.commands.run(TREE).stdout == "0\n")


def test_setsid_beside_background_children_does_no_harm(sbx):
    """gVisor hangs when a process with a child in its own group calls setsid(2)."""
    sbx.commands.run("sleep 997 & setsid true", timeout=60)
    assert sbx.commands.run("pgrep -f '^sleep 997' | wc -l", timeout=60).stdout == "1\n"
    sbx.commands.run("pkill -f '^sleep 997'")


def test_a_group_that_is_signalled_is_that_of_the_command_alone(sbx):
    other = sbx.commands.run("sleep 0.5; echo alive", background=True)
    with pytest.raises(CommandExitException) as ended:
        sbx.commands.run("kill 0; sleep 60", timeout=60)
    assert ended.value.exit_code == 143
    assert other.wait().stdout == "alive\n"


def test_no_signal_is_ignored(sbx):
    result = sbx.commands.run("yes | head -1; echo ${PIPESTATUS[@]}")
    assert (result.stdout, result.stderr) == ("y\n141 0\n", "")
    assert sbx.commands.run("sh -c 'kill -HUP $$'; echo $?").stdout == "129\n"


@pytest.mark.parametrize("stream", [1, 2])
def test_tb009_characters_cut_between_chunks(sbx, stream):
    seen = []
    script = (
        "import os,time\n"
        f"for part in (b'a\\xe2', b'\\x82', b'\\xac b'):\n os.write({stream}, part); time.sleep(.2)"
    )
    name = "on_stdout" if stream == 1 else "on_stderr"
    result = sbx.commands.run(f'python3 -c "{script}"', **{name: seen.append})
    assert (result.stdout, result.stderr)[stream - 1] == "a€ b"
    assert "".join(seen) == "a€ b"


@pytest.mark.parametrize("border", [4096, 8192, 16384, 32768, 65536])
def test_tb009_characters_on_buffer_borders(sbx, border):
    seen = []
    result = sbx.commands.run(
        f'python3 -c \'print("x"*{border - 1}+"\\u20ac"*30000)\'', on_stdout=seen.append
    )
    assert result.stdout == "x" * (border - 1) + "€" * 30000 + "\n"
    assert "".join(seen) == result.stdout


def test_tb011_a_signal_is_not_a_success(sbx):
    with pytest.raises(CommandExitException) as killed:
        sbx.commands.run("kill -9 $$")
    assert killed.value.exit_code == 137
    assert "killed" in str(killed.value.error)
    assert sbx.commands.run("sh -c 'kill -SEGV $$'; echo $?").stdout == "139\n"
    assert sbx.commands.run("exit 256").exit_code == 0
    with pytest.raises(CommandExitException) as high:
        sbx.commands.run("exit 300")
    assert high.value.exit_code == 44


@pytest.mark.parametrize("size", [131000, 131072, 200000, 2000000])
def test_tb013_long_commands(sbx, size):
    assert sbx.commands.run("x='" + "a" * size + "'; echo ${#x}").stdout == f"{size}\n"


def test_tb013_long_commands_keep_their_exit_code(sbx):
    with pytest.raises(CommandExitException) as caught:
        sbx.commands.run("x='" + "a" * 200000 + "'; exit 9")
    assert caught.value.exit_code == 9


def test_tb015_here_documents(sbx):
    line = "$HOME `id` \"q\" 's' \\\\ end"
    script = f"cat <<'EOF' > /tmp/h\n{line}\nEOF\nwc -l < /tmp/h; cat /tmp/h"
    assert sbx.commands.run(script, timeout=20).stdout == f"1\n{line}\n"


def test_tb017_image_without_bash(make):
    sandbox = make(template="minimal")
    result = sandbox.commands.run("echo $((1+1)); set -o pipefail 2>/dev/null; echo done")
    assert result.stdout == "2\ndone\n"
    seen = []
    pty = sandbox.pty.create(size=_size(), on_data=seen.append, timeout=30)
    pty_input = b"echo $((40+2)); exit 3\n"
    sandbox.pty.send_stdin(pty.pid, pty_input)
    with pytest.raises(CommandExitException) as ended:
        pty.wait(on_pty=seen.append)
    assert ended.value.exit_code == 3
    assert b"42" in b"".join(seen)


@pytest.mark.parametrize(
    ("argv", "code"), [(["dsfsdfsf"], 127), (["/etc/passwd"], 126), (["/tmp"], 126)]
)
def test_tb019_programs_that_cannot_start(sbx, argv, code):
    with pytest.raises(CommandExitException) as caught:
        sbx.commands.run(argv, timeout=20)
    assert caught.value.exit_code == code
    assert argv[0] in f"{caught.value.stderr} {caught.value.error} {caught.value}"


def test_tb019_a_shell_that_does_not_find_it(sbx):
    with pytest.raises(CommandExitException) as caught:
        sbx.commands.run("dsfsdfsf", timeout=20)
    assert caught.value.exit_code == 127
    assert "dsfsdfsf" in caught.value.stderr


@pytest.mark.parametrize(
    ("user", "home", "name"), [(None, "/home/user", "user"), ("root", "/root", "root")]
)
def test_tb021_environment_of_a_user(sbx, user, home, name):
    script = 'echo "$HOME|$USER|$LOGNAME"; cd; pwd; python3 -c "import pathlib;print(pathlib.Path.home())"'
    result = sbx.commands.run(script, user=user)
    assert result.stdout == f"{home}|{name}|{name}\n{home}\n{home}\n"
    assert sbx.commands.run(["printenv", "SHELL"], user=user).stdout == "/bin/bash\n"


def test_tb021_numeric_user_without_entry(sbx):
    result = sbx.commands.run('echo "$HOME|$(id -u):$(id -g)"; cd; pwd', user="1234")
    assert result.stdout.startswith("/|1234:")
    assert result.stdout.endswith("\n/\n")


def test_tb023_orphans_are_reaped(make, threads):
    sandbox = make()
    storm = sandbox.commands.run(
        'for i in $(seq 500); do (sh -c "sleep 0.05 & exit"); done', background=True, timeout=300
    )

    def seven():
        with pytest.raises(CommandExitException) as caught:
            sandbox.commands.run("exit 7", timeout=120)
        return caught.value.exit_code

    def many():
        return {seven() for _ in range(25)}

    assert threads([many] * 8) == [{7}] * 8
    storm.wait()
    wait_for(lambda: sandbox.commands.run("ps -eo stat | grep -c ^Z; true").stdout == "0\n")


def test_tb053_stdin_larger_than_the_pipe(sbx):
    for size in (65536, 65537, 8 << 20):
        handle = sbx.commands.run("cat", background=True, stdin=True, timeout=120)
        data = b"k" * size
        handle.send_stdin(data)
        handle.close_stdin()
        assert len(handle.wait().stdout) == size


def test_tb053_a_process_that_never_reads(sbx):
    handle = sbx.commands.run("sleep 60", background=True, stdin=True, timeout=120)
    with pytest.raises(SandboxException):
        sbx.commands.send_stdin(handle.pid, b"k" * (8 << 20), request_timeout=3)
    assert sbx.commands.run("echo still", timeout=20).stdout == "still\n"
    assert handle.kill() is True


@pytest.mark.parametrize("script", ['trap "" TERM INT HUP; sleep 60', "while :; do :; done", "yes"])
def test_tb057_deadline_ends_what_ignores_signals(sbx, script):
    with pytest.raises(TimeoutException):
        sbx.commands.run(script, timeout=3)
    wait_for(lambda: sbx.commands.run("pgrep -xc yes; true").stdout == "0\n")


def test_tb059_output_is_bytes_not_lines(sbx):
    assert sbx.commands.run("printf 'no-nl'").stdout == "no-nl"
    odd = sbx.commands.run("printf 'a\\0b\\r\\nc\\rd\\n\\n\\033[31me'")
    assert odd.stdout == "a\0b\r\nc\rd\n\n\x1b[31me"
    long = sbx.commands.run('head -c 5000000 /dev/zero | tr "\\0" z')
    assert long.stdout == "z" * 5000000


def test_tb059_a_prompt_arrives_before_the_end(sbx):
    arrived = []
    handle = sbx.commands.run("printf 'prompt> '; read x; echo got", background=True, stdin=True)

    def answer(text):
        arrived.append(text)
        if text == "prompt> ":
            handle.send_stdin("y\n")

    assert handle.wait(on_stdout=answer).stdout == "prompt> got\n"
    assert arrived[0] == "prompt> "


def test_tb061_subscribers_that_vanish(sbx):
    handle = sbx.commands.run("while :; do date +%N; done", background=True, timeout=0)
    for _ in range(20):
        other = sbx.commands.connect(handle.pid)
        next(iter(other))
        other.disconnect()
    lines = 0
    for stdout, _, _ in sbx.commands.connect(handle.pid):
        lines += (stdout or "").count("\n")
        if lines > 1000:
            break
    assert any(process.pid == handle.pid for process in sbx.commands.list())
    assert handle.kill() is True


def test_tb065_busy_cpus(make):
    sandbox = make(cpus=1)
    sandbox.commands.run("for i in 1 2 3 4 5 6 7 8; do yes >/dev/null & done")
    for _ in range(20):
        assert sandbox.commands.run("echo ok", timeout=15).stdout == "ok\n"
    assert sandbox.is_running()
    assert sandbox.kill()


def test_tb025_memory_hogs_spare_the_agent(make):
    sandbox = make(memory=512)
    boot = sandbox.files.read("/proc/sys/kernel/random/boot_id")
    hog = (
        "import os,time\nfor i in range(20):\n  if os.fork()==0:\n"
        "    b=bytearray(80<<20); time.sleep(30); os._exit(0)\nos.wait()"
    )
    sandbox.files.write("/tmp/hog.py", hog)
    with contextlib.suppress(CommandExitException, TimeoutException):
        sandbox.commands.run("python3 /tmp/hog.py", timeout=40)
    assert sandbox.commands.run("echo ok", timeout=60).stdout == "ok\n"
    assert int(sandbox.commands.run("cat /proc/self/oom_score_adj").stdout) >= 0
    assert sandbox.files.read("/proc/sys/kernel/random/boot_id") == boot


def test_fork_bomb_leaves_a_sandbox_that_answers(make):
    sandbox = make(pids=128)
    with contextlib.suppress(SandboxException):
        sandbox.commands.run(":(){ :|:& };:; sleep 2", timeout=5)
    wait_for(lambda: _answers(sandbox))


def _answers(sandbox):
    try:
        return sandbox.commands.run("echo ok", timeout=10).stdout == "ok\n"
    except SandboxException:
        return False


def _size():
    from tupper import PtySize

    return PtySize(rows=24, cols=80)
