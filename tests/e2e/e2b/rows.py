"""What code written for E2B expects, a row each: the behavioural checklist of the wire notes.

A row gets a :class:`driver.World` and knows no SDK by name. It fails by raising.
"""

import datetime as dt
import hashlib
import os
import time
import urllib.error
import urllib.request
import uuid

ROWS = []


class NotHere(Exception):
    """This SDK has no such call in this version or half."""


def row(function):
    """Put a function on the list."""
    ROWS.append(function)
    return function


def http(url, data=None, headers=None):
    """(status, body) of a request without any SDK, and without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, data=data, headers=headers or {})
        with opener.open(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def form(name, data, kind="text/plain"):
    """A multipart form with one file: (body, headers)."""
    mark = uuid.uuid4().hex
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    )
    body = head.encode() + data + f"\r\n--{mark}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={mark}"}


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
    pids = {each.pid for each in w.sbx.commands.list()}
    assert not pids & {handle.pid for handle in handles}


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


# --- files ----------------------------------------------------------------------------------


def _name():
    return f"t-{uuid.uuid4().hex[:8]}"


@row
def row_files_write_and_read(w):
    name = _name()
    info = w.sbx.files.write(name, "text ä")
    assert (info.path, info.name, info.type.value) == (f"/home/user/{name}", name, "file")
    assert w.sbx.files.read(name) == "text ä"
    assert bytes(w.sbx.files.read(name, format="bytes")) == "text ä".encode()
    w.sbx.files.write(name, "x")
    assert w.sbx.files.read(name) == "x"


@row
def row_files_write_makes_parents(w):
    name = _name()
    info = w.sbx.files.write(f"{name}/a/b.txt", b"\x00\xff")
    assert info.path == f"/home/user/{name}/a/b.txt"
    assert w.sbx.commands.run(f"stat -c '%U %a' {name} {name}/a/b.txt").stdout == (
        "user 755\nuser 644\n"
    )


@row
def row_files_write_a_stream(w):
    import io

    data = bytes(range(256)) * 4096
    w.sbx.files.write("/tmp/stream.bin", io.BytesIO(data))
    digest = hashlib.sha256(data).hexdigest()
    assert w.sbx.commands.run("sha256sum /tmp/stream.bin").stdout.split()[0] == digest


@row
def row_files_write_many_in_order(w):
    name = _name()
    files = [{"path": f"{name}/{number}.txt", "data": f"{number}"} for number in range(10)]
    infos = w.sbx.files.write_files(files)
    assert [each.path for each in infos] == [f"/home/user/{each['path']}" for each in files]
    assert [w.sbx.files.read(each["path"]) for each in files] == [each["data"] for each in files]
    assert w.sbx.files.write_files([]) == []


@row
def row_files_octet_stream_and_gzip(w):
    name, text = _name(), "compressible " * 10000
    import inspect

    target = getattr(w.sbx.files, "inner", w.sbx.files).write
    known = inspect.signature(target).parameters
    for options in ({"gzip": True}, {"use_octet_stream": True}, {}):
        if not set(options) <= set(known):
            continue
        w.sbx.files.write(name, text, **options)
        assert w.sbx.files.read(name) == text
        if "gzip" in known:
            assert w.sbx.files.read(name, gzip=True) == text


@row
def row_files_read_missing(w):
    w.raises("FileNotFoundException", lambda: w.sbx.files.read("no-such-file"))
    error = w.raises("NotFoundException", lambda: w.sbx.files.read("no-such-file"))
    assert "/home/user/no-such-file" in str(error)


@row
def row_files_read_a_directory(w):
    w.raises("InvalidArgumentException", lambda: w.sbx.files.read("/tmp"), "is a directory")


@row
def row_files_empty(w):
    name = _name()
    w.sbx.files.write(name, "")
    assert w.sbx.files.read(name) == ""
    assert bytes(w.sbx.files.read(name, format="bytes")) == b""


@row
def row_files_read_as_stream(w):
    data = bytes(range(256)) * 8192
    w.sbx.files.write("/tmp/big.bin", data)
    got = b"".join(w.sbx.files.read("/tmp/big.bin", format="stream"))
    assert got == data


@row
def row_files_stream_closed_early(w):
    w.sbx.commands.run("head -c 50000000 /dev/zero > /tmp/zeros")
    for _ in range(3):
        stream = w.sbx.files.read("/tmp/zeros", format="stream")
        first = next(iter(stream))
        assert first.strip(b"\0") == b""
        inner = getattr(stream, "inner", stream)
        if hasattr(inner, "aclose"):
            stream.aclose()
        elif hasattr(inner, "close"):
            stream.close()
    assert w.sbx.commands.run("echo alive").stdout == "alive\n"


@row
def row_files_proc(w):
    text = w.sbx.files.read("/proc/sys/kernel/random/boot_id")
    assert len(text.strip()) == 36


@row
def row_files_info(w):
    name = _name()
    w.sbx.files.write(name, "12345")
    info = w.sbx.files.get_info(name)
    assert (info.name, info.path, info.type.value, info.size) == (
        name,
        f"/home/user/{name}",
        "file",
        5,
    )
    assert (info.mode, info.permissions, info.owner, info.group) == (
        0o644,
        "-rw-r--r--",
        "user",
        "user",
    )
    assert abs((dt.datetime.now(dt.timezone.utc) - info.modified_time).total_seconds()) < 60
    assert info.symlink_target is None
    w.raises("FileNotFoundException", lambda: w.sbx.files.get_info("no-such-file"))


@row
def row_files_info_of_links_and_directories(w):
    name = _name()
    w.sbx.files.make_dir(name)
    w.sbx.files.write(f"{name}/test.txt", "x")
    w.sbx.commands.run("ln -s test.txt link", cwd=name)
    info = w.sbx.files.get_info(f"{name}/link")
    assert info.symlink_target == f"/home/user/{name}/test.txt"
    assert (info.name, info.type.value) == ("link", "file")
    folder = w.sbx.files.get_info(name)
    assert (folder.type.value, folder.mode, folder.permissions) == ("dir", 0o755, "drwxr-xr-x")
    assert w.sbx.files.get_info("/tmp").permissions == "dtrwxrwxrwx"


@row
def row_files_list_in_order(w):
    name = _name()
    for path in ("subdir1/subdir1_1/f", "subdir2/subdir2_1/f", "file1.txt"):
        w.sbx.files.write(f"{name}/{path}", "x")
    names = [each.name for each in w.sbx.files.list(name)]
    assert names == ["file1.txt", "subdir1", "subdir2"]
    two = [each.name for each in w.sbx.files.list(name, depth=2)]
    assert two == ["file1.txt", "subdir1", "subdir1_1", "subdir2", "subdir2_1"]
    three = [each.path for each in w.sbx.files.list(name, depth=3)]
    assert f"/home/user/{name}/subdir1/subdir1_1/f" in three
    w.raises("InvalidArgumentException", lambda: w.sbx.files.list(name, depth=0))
    w.raises("FileNotFoundException", lambda: w.sbx.files.list("no-such-dir"))
    w.raises("InvalidArgumentException", lambda: w.sbx.files.list(f"{name}/file1.txt"))


@row
def row_files_exists_remove_rename(w):
    name = _name()
    files = w.sbx.files
    assert files.exists(name) is False
    files.write(name, "x")
    assert files.exists(name) is True
    moved = files.rename(name, f"{name}-2")
    assert (moved.path, moved.name) == (f"/home/user/{name}-2", f"{name}-2")
    assert (files.exists(name), files.exists(f"{name}-2")) == (False, True)
    w.raises("FileNotFoundException", lambda: files.rename(name, "other"))
    files.remove(f"{name}-2")
    files.remove(f"{name}-2")
    assert files.exists(f"{name}-2") is False


@row
def row_files_make_dir(w):
    name = _name()
    assert w.sbx.files.make_dir(f"{name}/a/b") is True
    assert w.sbx.files.make_dir(f"{name}/a/b") is False
    w.sbx.files.write(f"{name}/f", "x")
    w.raises("InvalidArgumentException", lambda: w.sbx.files.make_dir(f"{name}/f"))


@row
def row_files_of_root(w):
    w.sbx.files.write("/root/secret", "x", user="root")
    assert w.sbx.files.read("secret", user="root") == "x"
    assert w.sbx.commands.run("stat -c %U /root/secret", user="root").stdout == "root\n"
    w.raises("AuthenticationException", lambda: w.sbx.files.read("x", user="nobody-here"))


@row
def row_files_metadata(w):
    import inspect

    target = getattr(w.sbx.files, "inner", w.sbx.files).write
    if "metadata" not in inspect.signature(target).parameters:
        raise NotHere("no metadata in this version")
    name = _name()
    info = w.sbx.files.write(name, "x", metadata={"author": "me", "Kind": "a b"})
    assert info.metadata == {"author": "me", "kind": "a b"}
    assert w.sbx.files.get_info(name).metadata == {"author": "me", "kind": "a b"}
    w.sbx.files.rename(name, f"{name}-2")
    assert w.sbx.files.get_info(f"{name}-2").metadata == {"author": "me", "kind": "a b"}
    w.sbx.files.write(f"{name}-2", "y")
    assert not w.sbx.files.get_info(f"{name}-2").metadata
    script = f"import os; os.setxattr('{name}-2', 'user.e2b.author', b'outside')"
    w.sbx.commands.run(f'python3 -c "{script}"')
    assert w.sbx.files.get_info(f"{name}-2").metadata == {"author": "outside"}
    w.raises(
        "InvalidArgumentException",
        lambda: w.sbx.files.write(name, "x", metadata={"bad key": "v"}),
    )


# --- watching -------------------------------------------------------------------------------


@row
def row_watch_exactly_three_events(w):
    name = _name()
    w.sbx.files.make_dir(name)
    take, stop = w.watch(name)
    w.sbx.files.write(f"{name}/new.txt", "small")
    seen = []
    w.wait_for(lambda: seen.extend(take()) or len(seen) >= 3)
    w.sbx.commands.run("true")
    seen.extend(take())
    assert [(each.name, each.type.value) for each in seen] == [
        ("new.txt", "create"),
        ("new.txt", "chmod"),
        ("new.txt", "write"),
    ], seen
    stop()


@row
def row_watch_changes(w):
    name = _name()
    w.sbx.files.write(f"{name}/f.txt", "x")
    take, stop = w.watch(name)
    w.sbx.files.write(f"{name}/f.txt", "yy")
    w.sbx.files.rename(f"{name}/f.txt", f"{name}/g.txt")
    w.sbx.files.remove(f"{name}/g.txt")
    seen = set()

    def enough():
        seen.update((each.name, each.type.value) for each in take())
        return {
            ("f.txt", "write"),
            ("f.txt", "rename"),
            ("g.txt", "create"),
            ("g.txt", "remove"),
        } <= seen

    w.wait_for(enough)
    stop()


@row
def row_watch_recursive(w):
    name = _name()
    w.sbx.files.make_dir(f"{name}/nested")
    take, stop = w.watch(name, recursive=True)
    w.sbx.files.write(f"{name}/nested/file.txt", "x")
    w.sbx.files.make_dir(f"{name}/later")
    w.sbx.files.write(f"{name}/later/file.txt", "x")
    seen = set()

    def enough():
        seen.update((each.name, each.type.value) for each in take())
        return {
            ("nested/file.txt", "write"),
            ("later", "create"),
            ("later/file.txt", "write"),
        } <= seen

    w.wait_for(enough)
    stop()


@row
def row_watch_entries(w):
    import inspect

    target = getattr(w.sbx.files, "inner", w.sbx.files).watch_dir
    if "include_entry" not in inspect.signature(target).parameters:
        raise NotHere("no include_entry in this version")
    name = _name()
    w.sbx.files.make_dir(name)
    take, stop = w.watch(name, include_entry=True)
    w.sbx.files.write(f"{name}/e.txt", "12345")
    seen = []
    w.wait_for(lambda: seen.extend(take()) or len(seen) >= 3)
    entry = next(each.entry for each in seen if each.type.value == "write")
    assert (entry.name, entry.path) == ("e.txt", f"/home/user/{name}/e.txt")
    stop()


@row
def row_watch_of_nothing(w):
    w.raises("FileNotFoundException", lambda: w.watch("no-such-dir"))
    name = _name()
    w.sbx.files.write(name, "x")
    w.raises("InvalidArgumentException", lambda: w.watch(name))


# --- links and security ---------------------------------------------------------------------


@row
def row_links_download_without_headers(w):
    w.sbx.files.write("linked.txt", "through a link")
    assert http(w.sbx.download_url("linked.txt")) == (200, b"through a link")
    url = w.sbx.download_url("linked.txt", user="user", use_signature_expiration=120)
    assert http(url) == (200, b"through a link")


@row
def row_links_upload_without_headers(w):
    body, headers = form("ignored.txt", b"uploaded")
    status, _ = http(w.sbx.upload_url("uploaded.txt"), body, headers)
    assert status == 200
    assert w.sbx.files.read("uploaded.txt") == "uploaded"
    url = w.sbx.upload_url("uploaded2.txt", use_signature_expiration=120)
    assert http(url, body, headers)[0] == 200


@row
def row_links_expired(w):
    url = w.sbx.download_url("linked.txt", use_signature_expiration=-60)
    status, body = http(url)
    assert status == 401
    assert body.decode().replace(" ", "") == (
        '{"code":401,"message":"signatureisalreadyexpired"}'
    ), body


@row
def row_links_forged(w):
    url = w.sbx.download_url("linked.txt")
    assert http(url.replace("linked.txt", "other.txt"))[0] == 401
    assert http(url.partition("&signature")[0] + "&signature=v1_x")[0] == 401


@row
def row_security_secure(w):
    made = w.create(secure=True)
    assert made.commands.run("echo ok").stdout == "ok\n"
    assert made.kill() is True


# --- life -----------------------------------------------------------------------------------


@row
def row_life_info(w):
    info = w.sbx.get_info()
    assert info.sandbox_id == w.sbx.sandbox_id
    assert info.metadata == {"kind": "shared"}
    assert (info.state.value, info.template_id) == ("running", "base")
    assert 800 < (info.end_at - info.started_at).total_seconds() < 1000
    assert info.cpu_count >= 1
    assert info.memory_mb >= 128
    assert isinstance(info.envd_version, str)
    assert w.Sandbox.get_info(w.sbx.sandbox_id).sandbox_id == w.sbx.sandbox_id


@row
def row_life_connect_never_shortens(w):
    before = w.sbx.get_info().end_at
    other = w.Sandbox.connect(w.sbx.sandbox_id, timeout=10)
    assert other.sandbox_id == w.sbx.sandbox_id
    assert other.get_info().end_at == before
    assert other.commands.run("echo $LEVEL").stdout == "sandbox\n"
    w.sbx.connect(timeout=2000)
    assert w.sbx.get_info().end_at > before
    w.sbx.set_timeout(900)


@row
def row_life_set_timeout_both_ways(w):
    w.sbx.set_timeout(300)
    shorter = w.sbx.get_info().end_at
    w.sbx.set_timeout(1200)
    assert (w.sbx.get_info().end_at - shorter).total_seconds() > 800
    w.Sandbox.set_timeout(w.sbx.sandbox_id, 900)


@row
def row_life_not_found(w):
    nothing = "i" + "0" * 20
    assert w.Sandbox.kill(nothing) is False
    assert w.Sandbox.kill("nonsense") is False
    w.raises("SandboxNotFoundException", lambda: w.Sandbox.connect(nothing))
    w.raises("NotFoundException", lambda: w.Sandbox.get_info(nothing))
    w.raises("NotFoundException", lambda: w.Sandbox.set_timeout(nothing, 10))


@row
def row_life_unknown_template(w):
    w.raises("SandboxException", lambda: w.create("no-such-template"), "no-such-template")


@row
def row_life_kill(w):
    made = w.create(metadata={"kill": "me"})
    assert made.is_running() is True
    handle = made.commands.run("sleep 60", background=True)
    assert made.kill() is True
    assert made.is_running() is False
    assert made.kill() is False
    paginator = w.Sandbox.list(query=w.sdk.SandboxQuery(state=[w.sdk.SandboxState.RUNNING]))
    assert made.sandbox_id not in [each.sandbox_id for each in paginator.next_items()]
    w.raises("TimeoutException", handle.wait)
    w.raises("TimeoutException", lambda: made.commands.run("echo x"))


@row
def row_life_after_the_kill(w):
    made = w.create()
    assert w.Sandbox.kill(made.sandbox_id) is True
    w.raises("SandboxNotFoundException", lambda: w.Sandbox.connect(made.sandbox_id))
    w.raises("SandboxNotFoundException", made.get_info)
    w.raises("SandboxNotFoundException", lambda: made.set_timeout(10))
    w.raises("TimeoutException", lambda: made.files.read("x"))
    w.raises("TimeoutException", lambda: made.files.list("/"))


@row
def row_life_killed_in_flight(w):
    import threading

    made = w.create()
    killer = threading.Timer(1.0, made.kill)
    killer.start()
    error = w.raises("TimeoutException", lambda: made.commands.run("sleep 60"))
    killer.join()
    assert "end of life while the request was in flight" in str(error), str(error)


@row
def row_life_expires(w):
    made = w.create(timeout=300)
    assert made.is_running() is True
    made.set_timeout(1)
    w.wait_for(lambda: not made.is_running(), 20)


@row
def row_life_with_block(w):
    with w.Sandbox.create(timeout=60) as made:
        assert made.commands.run("echo in").stdout == "in\n"
    assert w.Sandbox.kill(made.sandbox_id) is False


@row
def row_life_list_pages(w):
    mark = uuid.uuid4().hex
    made = [w.create(metadata={"mark": mark, "odd key &=": "a b&c=d/ä"}) for _ in range(2)]
    old, new = (each.sandbox_id for each in made)
    query = w.sdk.SandboxQuery(metadata={"mark": mark, "odd key &=": "a b&c=d/ä"})
    pages = w.Sandbox.list(query=query, limit=1)
    assert pages.has_next is True
    assert [each.sandbox_id for each in pages.next_items()] == [new]
    assert pages.has_next is True
    assert pages.next_token
    assert [each.sandbox_id for each in pages.next_items()] == [old]
    assert (pages.has_next, pages.next_token) == (False, None)
    w.raises("Exception", pages.next_items)
    other = w.Sandbox.list(query=w.sdk.SandboxQuery(metadata={"mark": "none"}))
    assert other.next_items() == []
    _list_options(w, mark, old, new)
    for each in made:
        each.kill()


def _list_options(w, mark, old, new):
    import inspect

    query = w.sdk.SandboxQuery
    inner = getattr(w.Sandbox, "inner", w.Sandbox)
    if "order" not in inspect.signature(inner.list).parameters:
        return
    found = w.Sandbox.list(query=query(metadata={"mark": mark}), order="asc").next_items()
    assert [each.sandbox_id for each in found] == [old, new]
    start = found[1].started_at

    def after(moment):
        wanted = query(metadata={"mark": mark}, started_after=moment)
        return [each.sandbox_id for each in w.Sandbox.list(query=wanted).next_items()]

    assert after(start) == [new]
    assert after(start + dt.timedelta(seconds=1)) == []
    for template, expected in (("base", [new, old]), ("no-such", [])):
        wanted = query(metadata={"mark": mark}, template=template)
        items = w.Sandbox.list(query=wanted).next_items()
        assert [each.sandbox_id for each in items] == expected


@row
def row_life_metrics(w):
    found = w.wait_for(w.sbx.get_metrics, 40)
    first = found[0]
    assert first.cpu_count >= 1
    assert first.cpu_used_pct >= 0
    assert 0 < first.mem_used <= first.mem_total
    assert 0 < first.disk_used <= first.disk_total
    now = dt.datetime.now(dt.timezone.utc)
    stamp = first.timestamp
    stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=dt.timezone.utc)
    assert abs((now - stamp).total_seconds()) < 600
    start = w.sbx.get_info().started_at - dt.timedelta(hours=2)
    assert w.sbx.get_metrics(start=start, end=start + dt.timedelta(hours=1)) == []


@row
def row_life_idempotent_create(w):
    import inspect

    inner = getattr(w.Sandbox, "inner", w.Sandbox)
    if "idempotency_key" not in inspect.signature(inner.create).parameters:
        raise NotHere("no idempotency_key in this version")
    key = uuid.uuid4().hex
    first = w.create(idempotency_key=key, metadata={"a": "b"})
    second = w.create(idempotency_key=key, metadata={"a": "b"})
    assert first.sandbox_id == second.sandbox_id
    w.raises("Exception", lambda: w.create(idempotency_key=key, metadata={"a": "c"}))
    first.kill()


@row
def row_life_request_timeout_and_bad_values(w):
    w.raises("Exception", lambda: w.create(timeout=-1))
    w.raises("Exception", lambda: w.create(envs={"A": 1}))


@row
def row_ports_host(w):
    host = w.sbx.get_host(8000)
    assert isinstance(host, str)
    assert "://" not in host
    server = w.sbx.commands.run(
        "mkdir -p www && echo served > www/f && python3 -m http.server 8000 -d www",
        background=True,
        timeout=0,
    )
    address, headers = host, {}
    if w.package == "e2b":
        address = host.partition(".")[2]
        headers = {"Host": host}
    found = w.wait_for(
        lambda: (got := http(f"http://{address}/f", headers=headers))[0] == 200 and got, 30
    )
    assert found[1] == b"served\n"
    server.kill()


# --- network --------------------------------------------------------------------------------

# Two addresses with a web server, in a network of the test's own. Nothing else is dialled.
ONE, TWO = (os.environ.get("ROWS_PLACES") or ",").split(",")
_DIAL = (
    "curl -s -o /dev/null --noproxy '*' --max-time 5 http://%s:8080/ && echo open || echo denied"
)


def reach(sandbox, address):
    """Whether the policy of a sandbox lets it out to an address."""
    return sandbox.commands.run(_DIAL % address).stdout.strip()


def need_places():
    """Skip a row where there is no such network."""
    if not ONE:
        raise NotHere("a network of the test's own needs root")


@row
def row_network_no_internet(w):
    need_places()
    made = w.create(allow_internet_access=False)
    assert reach(made, ONE) == "denied"
    assert reach(w.sbx, ONE) == "open"
    assert made.get_info().allow_internet_access is False
    made.kill()


@row
def row_network_lists(w):
    need_places()
    made = w.create(network={"allow_out": [ONE], "deny_out": [w.sdk.ALL_TRAFFIC]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    made.kill()
    made = w.create(network={"deny_out": [f"{TWO}/32"]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    _update(w, made)
    made.kill()


def _update(w, made):
    if not hasattr(getattr(made, "inner", made), "update_network"):
        return
    made.update_network({"deny_out": [ONE]})
    assert (reach(made, ONE), reach(made, TWO)) == ("denied", "open")
    made.update_network({"allow_out": [TWO], "deny_out": [w.sdk.ALL_TRAFFIC]})
    assert (reach(made, ONE), reach(made, TWO)) == ("denied", "open")
    made.update_network({"allow_internet_access": False})
    assert reach(made, TWO) == "denied"
    made.update_network({})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "open")


@row
def row_network_selectors(w):
    need_places()
    made = w.create(network={"allow_out": [ONE], "deny_out": lambda context: [context.all_traffic]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    made.kill()


@row
def row_network_refused(w):
    all_traffic = w.sdk.ALL_TRAFFIC
    for network in (
        {"allow_out": ["example.com"], "deny_out": [all_traffic]},
        {"allow_out": ["example.com"]},
        {"deny_out": ["example.com"]},
    ):
        w.raises("SandboxException", lambda network=network: w.create(network=network))


# --- git ------------------------------------------------------------------------------------


@row
def row_git_init_commit_status(w):
    git, path = w.sbx.git, f"/home/user/{_name()}"
    git.init(path, initial_branch="main")
    git.configure_user("A U Thor", "a@example.com", scope="local", path=path)
    w.sbx.files.write(f"{path}/a.txt", "1")
    status = git.status(path)
    assert status.current_branch == "main"
    assert [(each.name, each.status, each.staged) for each in status.file_status] == [
        ("a.txt", "untracked", False)
    ]
    assert (status.is_clean, status.has_untracked) == (False, True)
    git.add(path)
    assert git.status(path).has_staged is True
    git.commit(path, "first")
    assert git.status(path).is_clean is True
    git.create_branch(path, "topic")
    branches = git.branches(path)
    assert (sorted(branches.branches), branches.current_branch) == (["main", "topic"], "topic")
    git.checkout_branch(path, "main")
    git.delete_branch(path, "topic")
    assert git.branches(path).branches == ["main"]
    assert git.get_config("user.email", scope="local", path=path) == "a@example.com"


@row
def row_git_clone_push_pull(w):
    git, name = w.sbx.git, _name()
    bare, one, two = (f"/home/user/{name}-{each}" for each in ("bare", "one", "two"))
    git.init(bare, bare=True, initial_branch="main")
    git.init(one, initial_branch="main")
    git.configure_user("A", "a@example.com")
    w.sbx.files.write(f"{one}/f", "1")
    git.add(one)
    git.commit(one, "one")
    git.remote_add(one, "origin", bare)
    assert git.remote_get(one, "origin") == bare
    git.push(one, remote="origin", branch="main", set_upstream=True)
    git.clone(bare, path=two)
    assert w.sbx.files.read(f"{two}/f") == "1"
    w.sbx.files.write(f"{one}/f", "2")
    git.commit(one, "two", allow_empty=True)
    git.add(one)
    git.commit(one, "three")
    git.push(one)
    git.pull(two)
    assert w.sbx.files.read(f"{two}/f") == "2"


# --- what does not exist here answers cleanly ------------------------------------------------


@row
def row_git_errors(w):
    git, path = w.sbx.git, f"/home/user/{_name()}"
    git.init(path, initial_branch="main")
    git.configure_user("A", "a@example.com", "local", path)
    git.commit(path, "one", allow_empty=True)
    git.remote_add(path, "origin", "/nowhere")
    git.remote_add(path, "origin", f"{path}/.git", overwrite=True)
    w.raises("CommandExitException", lambda: git.remote_add(path, "origin", "/nowhere"))
    w.raises("GitUpstreamException", lambda: git.push(path))
    w.raises("GitUpstreamException", lambda: git.pull(path))
    assert git.remote_get(path, "none") is None
    assert git.get_config("none.such") is None
    bad = "InvalidArgumentException"
    w.raises(bad, lambda: git.get_config("a.b", scope="elsewhere"))
    w.raises(bad, lambda: git.get_config("a.b", scope="local"))
    w.raises(bad, lambda: git.restore(path, []))
    w.raises(bad, lambda: git.restore(path, ["a"], staged=False, worktree=False))
    w.raises(bad, lambda: git.reset(path, mode="strange"))
    w.raises(bad, lambda: git.dangerously_authenticate("u", ""))


_STATES = """cd %s; git config user.name a; git config user.email a@b
for i in a b c d e f; do echo $i$i$i$i > $i; done; git add .; git commit -qm 1
git mv a moved; echo 1 >> b; git rm -q c; rm d; echo x >> e; git add e; echo y >> e
echo n > new; git add new; echo u > untracked; mkdir dir; echo 1 > dir/f"""


@row
def row_git_states(w):
    git, path = w.sbx.git, f"/home/user/{_name()}"
    git.init(path, initial_branch="main")
    w.sbx.commands.run(_STATES % path)
    status = git.status(path)
    found = {each.name: each for each in status.file_status}
    assert {
        name: (each.status, each.index_status, each.working_tree_status, each.staged)
        for name, each in found.items()
    } == {
        "moved": ("renamed", "R", " ", True),
        "b": ("modified", " ", "M", False),
        "c": ("deleted", "D", " ", True),
        "d": ("deleted", " ", "D", False),
        "e": ("modified", "M", "M", True),
        "new": ("added", "A", " ", True),
        "untracked": ("untracked", "?", "?", False),
        "dir/": ("untracked", "?", "?", False),
    }
    assert found["moved"].renamed_from == "a"
    assert (status.staged_count, status.unstaged_count, status.untracked_count) == (4, 4, 2)
    git.reset(path, mode="hard")
    git.restore(path, ["."])
    w.sbx.commands.run("git checkout -q --detach", cwd=path)
    status = git.status(path)
    assert (status.current_branch, status.detached) == (None, True)


@row
def row_absent_pause(w):
    w.raises("SandboxException", w.sbx.pause, "not support")
    assert w.sbx.is_running() is True


@row
def row_absent_snapshot(w):
    if not hasattr(getattr(w.sbx, "inner", w.sbx), "create_snapshot"):
        raise NotHere("no snapshots in this version")
    w.raises("SandboxException", w.sbx.create_snapshot, "not support")


@row
def row_absent_fork(w):
    if not hasattr(getattr(w.sbx, "inner", w.sbx), "fork"):
        raise NotHere("no fork in this version")
    w.raises("SandboxException", w.sbx.fork, "not support")


@row
def row_absent_auto_pause(w):
    w.raises("SandboxException", lambda: w.create(lifecycle={"on_timeout": "pause"}), "not support")
