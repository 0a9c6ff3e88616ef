"""Files of a sandbox, as tools and as resources, and copies between it and this machine."""

import base64
import os

import pytest
from mcp.shared.exceptions import MCPError

from e2e.mcp.serving import serving


async def test_files_are_written_read_and_edited():
    async with serving() as call:
        text = "one\ntwo\r\nthree ü\n"
        written = await call("write_file", path="new/dir/a.txt", content=text)
        assert written == {"path": "/home/user/new/dir/a.txt", "size_bytes": len(text.encode())}
        read = await call("read_file", path="new/dir/a.txt")
        assert (read["content"], read["next_start"], read["notes"]) == (text, None, [])
        await call("edit_file", path="new/dir/a.txt", old="two\r\n", new="2\r\n")
        assert (await call("read_file", path="new/dir/a.txt", start=1, limit=1))[
            "content"
        ] == "2\r\n"
        await call("run_command", command="chmod 755 new/dir/a.txt")
        await call("edit_file", path="new/dir/a.txt", old="e", new="E", replace_all=True)
        [entry] = (await call("list_files", path="new/dir"))["entries"]
        assert entry["permissions"] == "-rwxr-xr-x"
        text = await call.fails("edit_file", path="new/dir/a.txt", old="E", new="x")
        assert "3 times" in text


async def test_a_long_file_is_read_in_parts():
    async with serving() as call:
        await call("run_command", command="seq 1 5000 > long; tr -d '\\n' < long > oneline")
        read, start = "", 0
        while start is not None:
            part = await call("read_file", path="long", start=start, limit=1999)
            read, start = read + part["content"], part["next_start"]
        assert read == "".join(f"{n}\n" for n in range(1, 5001))
        assert (await call("read_file", path="oneline"))["next_start"] is None
        await call("run_command", command="for i in 1 2 3 4 5 6 7 8; do cat oneline; done > wide")
        part = await call("read_file", path="wide")
        assert len(part["content"]) == 100_000
        assert "longer than what is shown" in " ".join(part["notes"])


async def test_bytes_come_as_base64_and_never_as_text_by_accident():
    data = bytes(range(256)) * 300
    async with serving() as call:
        await call(
            "write_file", path="b", content=base64.b64encode(data).decode(), encoding="base64"
        )
        assert "base64" in await call.fails("read_file", path="b")
        read, start = b"", 0
        while start is not None:
            part = await call("read_file", path="b", encoding="base64", start=start, limit=50_000)
            read, start = read + base64.b64decode(part["content"]), part["next_start"]
        assert read == data
        latin = base64.b64encode("grün\n".encode("latin-1")).decode()
        await call("write_file", path="l", content=latin, encoding="base64")
        read = await call("read_file", path="l")
        assert read["content"] == "gr\ufffdn\n"
        assert "U+FFFD" in read["notes"][0]
        assert "not UTF-8" in await call.fails("edit_file", path="l", old="n", new="m")


async def test_what_is_not_there_or_not_a_file_is_said():
    async with serving() as call:
        for name, arguments in (
            ("read_file", {"path": "nope"}),
            ("list_files", {"path": "nope"}),
            ("edit_file", {"path": "nope", "old": "a", "new": "b"}),
        ):
            assert "does not exist" in await call.fails(name, **arguments)
        assert "director" in await call.fails("read_file", path="/tmp")
        assert "director" in await call.fails("write_file", path="/tmp", content="")


@pytest.mark.parametrize("template", ["minimal", "base"])
async def test_searching_by_content_and_name(template):
    async with serving(template=template) as call:
        await call("write_file", path="src/a.py", content="import os\nprint('x: 1')\n")
        await call("write_file", path="src/b.txt", content="print(2)\n")
        await call("write_file", path="src/.git/c.py", content="print(3)\n")
        await call("write_file", path="src/-d.py", content="")
        found = await call("search_files", pattern="pr[i]nt", path="src")
        hits = {(m["path"].removeprefix("./"), m["line"], m["text"]) for m in found["matches"]}
        assert hits == {("src/a.py", 2, "print('x: 1')"), ("src/b.txt", 1, "print(2)")}
        found = await call("search_files", pattern="PRINT(2", literal=True, ignore_case=True)
        assert [m["line"] for m in found["matches"]] == [1]
        found = await call("search_files", glob="*.py", path="src")
        assert sorted(m["path"] for m in found["matches"]) == ["src/-d.py", "src/a.py"]
        found = await call("search_files", pattern="t", path="src", limit=1)
        assert (len(found["matches"]), found["next_start"]) == (1, 1)
        assert (await call("search_files", pattern="nothing", path="src"))["matches"] == []
        assert "nope" in await call.fails("search_files", pattern="x", path="nope")


async def test_files_are_resources():
    async with serving() as call:
        await call("write_file", path="/tmp/a b/ü.txt", content="text ü\n")
        await call("write_file", path="/tmp/x.png", content="iVBOR/8=", encoding="base64")
        [text] = (await call.client.read_resource("sandbox://own/tmp/a%20b/%C3%BC.txt")).contents
        assert (text.text, text.mime_type) == ("text ü\n", "text/plain")
        sandbox = (await call("list_sandboxes"))["sandboxes"][0]["sandbox"]
        [blob] = (await call.client.read_resource(f"sandbox://{sandbox}/tmp/x.png")).contents
        assert (blob.blob, blob.mime_type) == ("iVBOR/8=", "image/png")
        for uri, word in (
            ("sandbox://own/tmp/nope", "does not exist"),
            ("sandbox://own/../etc/passwd", "Unknown"),
            ("sandbox://other/tmp/x.png", "no sandbox"),
        ):
            with pytest.raises(MCPError, match=word):
                await call.client.read_resource(uri)


async def test_copies_stay_in_the_shared_directory(tmp_path):
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a").write_bytes(bytes(range(256)))
    async with serving(share={str(tmp_path): True}) as call:
        await call("copy_files", direction="upload", host_path="tree", sandbox_path="/tmp/tree")
        await call("run_command", command="cd /tmp/tree; mv sub other; ln -s /etc/passwd link")
        await call("copy_files", direction="download", host_path="back", sandbox_path="/tmp/tree")
        assert (tmp_path / "back" / "other" / "a").read_bytes() == bytes(range(256))
        assert os.readlink(tmp_path / "back" / "link") == "/etc/passwd"
        text = await call.fails(
            "copy_files", direction="upload", host_path="back/link", sandbox_path="/tmp/p"
        )
        assert "not in a shared directory" in text
