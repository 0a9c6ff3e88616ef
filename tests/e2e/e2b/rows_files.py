"""Files, watching, links. Rows of the checklist; see ``rows``."""

import datetime as dt
import hashlib

from rows_common import NotHere, form, http, new_name, row

# --- files ----------------------------------------------------------------------------------


@row
def row_files_write_and_read(w):
    name = new_name()
    info = w.sbx.files.write(name, "text ä")
    assert (info.path, info.name, info.type.value) == (f"/home/user/{name}", name, "file")
    assert w.sbx.files.read(name) == "text ä"
    assert bytes(w.sbx.files.read(name, format="bytes")) == "text ä".encode()
    w.sbx.files.write(name, "x")
    assert w.sbx.files.read(name) == "x"


@row
def row_files_write_makes_parents(w):
    name = new_name()
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
    name = new_name()
    files = [{"path": f"{name}/{number}.txt", "data": f"{number}"} for number in range(10)]
    infos = w.sbx.files.write_files(files)
    assert [each.path for each in infos] == [f"/home/user/{each['path']}" for each in files]
    assert [w.sbx.files.read(each["path"]) for each in files] == [each["data"] for each in files]
    assert w.sbx.files.write_files([]) == []


@row
def row_files_octet_stream_and_gzip(w):
    name, text = new_name(), "compressible " * 10000
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
    name = new_name()
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
