"""Commands and terminals. Rows of the checklist; see ``rows``."""

import time

from rows_common import NotHere, row

# --- commands -------------------------------------------------------------------------------


@row
def row_commands_stdout_is_exact(w):
    result = w.sbx.commands.run("echo hello; echo oops >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == (
        "hello\n",
        "oops\n",
        0,
        None,
    )


@row
def row_commands_special_characters(w):
    text = '!@#$%^&*()_+{}|:<>?~`-=[];,./ äöü 漢字 \\ "'
    assert w.sbx.commands.run(f"cat <<'END'\n{text}\nEND").stdout == text + "\n"


@row
def row_commands_many_lines(w):
    lines = "".join(f"{number}\n" for number in range(1, 2001))
    assert w.sbx.commands.run("seq 1 2000").stdout == lines


@row
def row_commands_split_utf8(w):
    script = "import sys; sys.stdout.buffer.write(b'a'*8191 + b'\\xe2')"
    out = w.sbx.commands.run(f'python3 -c "{script}"').stdout
    assert out == "a" * 8191 + "\ufffd"


@row
def row_commands_exit_exception(w):
    error = w.raises(
        "CommandExitException", lambda: w.sbx.commands.run("echo o; echo e >&2; exit 7")
    )
    assert (error.exit_code, error.stdout, error.stderr, error.error) == (
        7,
        "o\n",
        "e\n",
        "exit status 7",
    )
    assert isinstance(error, w.sdk.SandboxException)


@row
def row_commands_not_found_is_127(w):
    error = w.raises("CommandExitException", lambda: w.sbx.commands.run("no-such-program"))
    assert error.exit_code == 127


@row
def row_commands_timeout(w):
    w.raises("TimeoutException", lambda: w.sbx.commands.run("sleep 10", timeout=1))


@row
def row_commands_timeout_of_a_background_one(w):
    handle = w.sbx.commands.run("sleep 10", background=True, timeout=1)
    w.raises("TimeoutException", handle.wait)


@row
def row_commands_timeout_while_iterating(w):
    if w.is_async:
        raise NotHere("async handles are not iterated")
    handle = w.sbx.commands.run("echo a; sleep 10", background=True, timeout=1)
    w.raises("TimeoutException", lambda: list(handle))


@row
def row_commands_callbacks(w):
    out, err = [], []
    w.sbx.commands.run(
        "echo one; sleep 0.3; echo two; echo three >&2", on_stdout=out.append, on_stderr=err.append
    )
    assert "".join(out) == "one\ntwo\n"
    assert len(out) == 2
    assert "".join(err) == "three\n"


@row
def row_commands_callback_that_raises(w):
    def fail(_):
        raise RuntimeError("mine")

    w.raises("RuntimeError", lambda: w.sbx.commands.run("echo x", on_stdout=fail), "mine")


@row
def row_commands_background_and_list(w):
    handles = [w.sbx.commands.run("sleep 60", background=True) for _ in range(2)]
    listed = {each.pid: each for each in w.sbx.commands.list()}
    for handle in handles:
        assert listed[handle.pid].cmd == "/bin/bash"
        assert listed[handle.pid].args == ["-l", "-c", "sleep 60"]
        assert w.sbx.commands.kill(handle.pid) is True
    killed = {handle.pid for handle in handles}
    w.wait_for(lambda: not killed & {each.pid for each in w.sbx.commands.list()})


@row
def row_commands_kill_really_kills(w):
    handle = w.sbx.commands.run("sleep 60", background=True)
    w.sbx.commands.run(f"kill -0 {handle.pid}")
    assert handle.kill() is True
    w.raises("CommandExitException", lambda: w.sbx.commands.run(f"kill -0 {handle.pid}"))
    error = w.raises("CommandExitException", handle.wait)
    assert error.exit_code != 0
    assert "killed" in (error.error or "")


@row
def row_commands_kill_of_nothing(w):
    assert w.sbx.commands.kill(999999) is False


@row
def row_commands_connect(w):
    handle = w.sbx.commands.run(
        "for i in 1 2 3 4 5 6; do echo $i; sleep 0.4; done; exit 3", background=True
    )
    other = w.sbx.commands.connect(handle.pid)
    assert other.pid == handle.pid
    error = w.raises("CommandExitException", other.wait)
    assert error.exit_code == 3
    assert error.stdout.endswith("5\n6\n")


@row
def row_commands_connect_to_nothing(w):
    w.raises("NotFoundException", lambda: w.sbx.commands.connect(999999))


@row
def row_commands_disconnect_leaves_it_running(w):
    handle = w.sbx.commands.run("sleep 60", background=True)
    handle.disconnect()
    w.sbx.commands.run(f"kill -0 {handle.pid}")
    assert w.sbx.commands.kill(handle.pid) is True


@row
def row_commands_iteration(w):
    if w.is_async:
        raise NotHere("async handles are not iterated")
    handle = w.sbx.commands.run("echo a; sleep 0.3; echo b >&2", background=True)
    seen = list(handle)
    assert seen == [("a\n", None, None), (None, "b\n", None)]
    result = handle.wait()
    assert (result.stdout, result.stderr, result.exit_code) == ("a\n", "b\n", 0)


@row
def row_commands_async_handle_properties(w):
    if not w.is_async:
        raise NotHere("sync handles have no such properties")
    handle = w.sbx.commands.run("echo a; sleep 0.2; echo b >&2; exit 2", background=True)
    assert handle.exit_code is None
    w.raises("CommandExitException", handle.wait)
    assert (handle.stdout, handle.stderr, handle.exit_code) == ("a\n", "b\n", 2)


@row
def row_commands_send_stdin(w):
    for text in ("hello\n", b"bytes\n"):
        handle = w.sbx.commands.run("head -n 1", background=True, stdin=True)
        w.sbx.commands.send_stdin(handle.pid, text)
        expected = text if isinstance(text, str) else text.decode()
        assert handle.wait().stdout == expected


@row
def row_commands_send_empty_stdin(w):
    handle = w.sbx.commands.run("head -n 1", background=True, stdin=True)
    w.sbx.commands.send_stdin(handle.pid, "")
    w.sbx.commands.send_stdin(handle.pid, "x\n")
    assert handle.wait().stdout == "x\n"


@row
def row_commands_close_stdin(w):
    handle = w.sbx.commands.run("cat", background=True, stdin=True)
    w.sbx.commands.send_stdin(handle.pid, "to the end")
    w.sbx.commands.close_stdin(handle.pid)
    result = handle.wait()
    assert (result.stdout, result.exit_code) == ("to the end", 0)


@row
def row_commands_handle_stdin(w):
    handle = w.sbx.commands.run("cat", background=True, stdin=True)
    if not hasattr(getattr(handle, "inner", handle), "send_stdin"):
        handle.kill()
        raise NotHere("handles have no send_stdin in this version")
    handle.send_stdin("via handle")
    handle.close_stdin()
    assert handle.wait().stdout == "via handle"


@row
def row_commands_stream_input(w):
    commands = getattr(w.sbx.commands, "inner", w.sbx.commands)
    if not hasattr(commands, "stream_input"):
        raise NotHere("no stream_input in this version")
    handle = w.sbx.commands.run("cat", background=True, stdin=True)
    pieces = [f"{number}\n" for number in range(20)]
    if w.is_async:
        with w.sbx.commands.stream_input(handle.pid) as stream:
            for piece in pieces:
                stream.send(piece)
    else:
        w.sbx.commands.stream_input(handle.pid, iter(pieces))
        w.raises(
            "InvalidArgumentException", lambda: w.sbx.commands.stream_input(handle.pid, "text")
        )
    w.sbx.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "".join(f"{number}\n" for number in range(20))


@row
def row_commands_no_stdin_by_default(w):
    assert w.sbx.commands.run("cat; echo done", timeout=10).stdout == "done\n"


@row
def row_commands_home_is_the_default_cwd(w):
    assert w.sbx.commands.run("pwd").stdout == "/home/user\n"
    assert w.sbx.commands.run("whoami").stdout == "user\n"


@row
def row_commands_cwd(w):
    w.sbx.files.make_dir("relative/deep")
    assert w.sbx.commands.run("pwd", cwd="relative/deep").stdout == "/home/user/relative/deep\n"
    assert w.sbx.commands.run("pwd", cwd="~/relative").stdout == "/home/user/relative\n"
    assert w.sbx.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    w.raises("InvalidArgumentException", lambda: w.sbx.commands.run("pwd", cwd="/no/where"))


@row
def row_commands_root_and_sudo(w):
    assert w.sbx.commands.run("id -un; pwd", user="root").stdout == "root\n/root\n"
    assert w.sbx.commands.run("sudo id -u").stdout == "0\n"
    out = w.sbx.commands.run("sudo env", envs={"SECRET_OF_MINE": "x"}).stdout
    assert "SECRET_OF_MINE" not in out


@row
def row_commands_unknown_user(w):
    w.raises("AuthenticationException", lambda: w.sbx.commands.run("id", user="nobody-here"))


@row
def row_commands_envs(w):
    run = w.sbx.commands.run
    assert run("echo $LEVEL $OTHER").stdout == "sandbox kept\n"
    assert run("echo $LEVEL $OTHER", envs={"LEVEL": "command"}).stdout == "command kept\n"
    assert run("echo $LEVEL").stdout == "sandbox\n"
    assert run("echo $E2B_SANDBOX $E2B_SANDBOX_ID").stdout == f"true {w.sbx.sandbox_id}\n"
    assert run("echo $HOME $USER $LOGNAME").stdout == "/home/user user user\n"


@row
def row_commands_pythons(w):
    for name in ("python", "python3"):
        assert w.sbx.commands.run(f"{name} -c 'print(1 + 1)'").stdout == "2\n"


@row
def row_commands_background_grandchild(w):
    started = time.monotonic()
    assert w.sbx.commands.run("sleep 30 >/dev/null 2>&1 & echo started").stdout == "started\n"
    assert time.monotonic() - started < 25


@row
def row_commands_large_output(w):
    out = w.sbx.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout
    assert len(out) == 3_000_000


@row
def row_commands_no_time_limit(w):
    handle = w.sbx.commands.run("sleep 0.5; echo done", background=True, timeout=0)
    assert handle.wait().stdout == "done\n"


@row
def row_commands_wait_callbacks(w):
    if w.is_async:
        raise NotHere("async handles take callbacks at the start only")
    handle = w.sbx.commands.run("echo a; echo b >&2", background=True)
    out, err = [], []
    handle.wait(on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("a\n", "b\n")


# --- terminals ------------------------------------------------------------------------------


def _size(w, cols=80):
    return w.sdk.PtySize(rows=24, cols=cols)


@row
def row_pty_env_cwd_and_exit(w):
    pid, shown, handle = w.terminal(_size(w), envs={"ABC": "123"}, cwd="/tmp")
    w.sbx.pty.send_stdin(pid, b"echo $ABC-$PWD-$TERM\n")
    w.wait_for(lambda: "123-/tmp-xterm-256color" in shown())
    w.sbx.pty.send_stdin(pid, b"exit\n")
    if w.is_async:
        assert handle.wait().exit_code == 0
    else:
        w.wait_for(lambda: pid not in {each.pid for each in w.sbx.commands.list()})


@row
def row_pty_resize(w):
    pid, shown, _ = w.terminal(_size(w))
    w.sbx.pty.send_stdin(pid, b"echo c=$(tput cols)\n")
    w.wait_for(lambda: "c=80" in shown())
    w.sbx.pty.resize(pid, _size(w, 100))
    w.sbx.pty.send_stdin(pid, b"echo c=$(tput cols)\n")
    w.wait_for(lambda: "c=100" in shown())
    assert w.sbx.pty.kill(pid) is True


@row
def row_pty_kill(w):
    pid, _, _ = w.terminal(_size(w))
    assert w.sbx.pty.kill(pid) is True
    assert w.sbx.pty.kill(pid) is False
    assert w.sbx.pty.kill(999999) is False


@row
def row_pty_reconnect(w):
    if w.is_async:
        pid, shown, handle = w.terminal(_size(w), envs={"FOO": "bar"})
        w.sbx.pty.send_stdin(pid, b"echo 1-$FOO\n")
        w.wait_for(lambda: "1-bar" in shown())
    else:
        handle = w.sbx.pty.create(_size(w), envs={"FOO": "bar"})
        pid, seen = handle.pid, b""
        w.sbx.pty.send_stdin(pid, b"echo 1-$FOO\n")
        for _, _, data in handle:
            seen += data or b""
            if b"1-bar" in seen:
                break
    handle.disconnect()
    again, other = w.attach_terminal(pid)
    w.sbx.pty.send_stdin(pid, b"echo 2-$FOO\n")
    w.wait_for(lambda: "2-bar" in again())
    w.sbx.pty.send_stdin(pid, b"exit\n")
    if w.is_async:
        assert other.wait().exit_code == 0
    else:
        w.wait_for(lambda: pid not in {each.pid for each in w.sbx.commands.list()})
