"""The verbs around commands: lists, files, ports, ends."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest

from tupper import Sandbox


@pytest.fixture
def named():
    with Sandbox.create(
        name=f"cli-{os.getpid()}", metadata={"made-by": "cli-test"}, timeout=600
    ) as made:
        yield made


def test_create_list_info_kill(tupper):
    created = tupper("create", "--timeout", "5m", "-l", "who=me", "--cpus", "1", "--memory", "300m")
    assert created.code == 0, created.err
    name = created.out.strip()
    assert tupper("list", "-q", "-l", "who=me").out == name + "\n"
    (row,) = json.loads(tupper("list", "--json", "-l", "who=me").out)
    assert (row["sandbox_id"], row["metadata"], row["memory_mb"]) == (name, {"who": "me"}, 300)
    assert name in tupper("list").out
    info = tupper("info", name[:12])
    assert "user-kernel" in info.out
    killed = tupper("kill", name)
    assert (killed.code, killed.out) == (0, name + "\n")
    again = tupper("kill", name)
    assert again.code == 1
    assert name in again.err
    assert "killed" in tupper("list", "--ended").out
    assert json.loads(tupper("info", "--json", name).out)["end_reason"] == "killed"


def test_the_group_has_the_same_verbs(tupper):
    name = tupper("sandbox", "create").out.strip()
    assert name in tupper("sandbox", "list", "-q").out.split()
    assert tupper("sandbox", "kill", name).code == 0


def test_names_and_beginnings_of_ids_are_enough(tupper, named):
    for word in (named.sandbox_id, named.sandbox_id[:10], f"cli-{os.getpid()}"):
        assert tupper("exec", word, "--", "hostname").code == 0


def test_a_wrong_name_gets_a_guess(tupper, named):
    ended = tupper("info", f"cli-{os.getpid()}x")
    assert ended.code == 1
    assert f"cli-{os.getpid()}" in ended.err.split("hint:")[1]


def test_a_name_that_is_taken_is_refused(tupper, named):
    ended = tupper("create", "--name", f"cli-{os.getpid()}")
    assert ended.code == 1
    assert f"cli-{os.getpid()}" in ended.err


def test_files_both_ways(tupper, box, tmp_path):
    source, back = tmp_path / "a.bin", tmp_path / "b.bin"
    source.write_bytes(os.urandom(1_500_000))
    assert tupper("cp", str(source), f"{box}:/tmp/x/").code == 0
    assert tupper("cp", f"{box}:/tmp/x/a.bin", str(back)).code == 0
    assert back.read_bytes() == source.read_bytes()
    assert tupper("write", box, "/tmp/w", given=b"hello").code == 0
    assert tupper("read", box, "/tmp/w").out == "hello"
    assert tupper("cp", "-", f"{box}:/tmp/w2", given=b"there").code == 0
    assert tupper("cp", f"{box}:/tmp/w2", "-").out == "there"


def test_trees_both_ways(tupper, box, tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "f").write_text("x")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    refused = tupper("cp", str(tree), f"{box}:/tmp/t1")
    assert refused.code == 2
    assert "-r" in refused.err
    assert tupper("cp", "-r", str(tree), f"{box}:/tmp/t1").code == 0
    assert tupper("cp", "-r", f"{box}:/tmp/t1", str(tmp_path / "back")).code == 0
    assert (tmp_path / "back" / "deep" / "f").read_text() == "x"
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o111


def test_a_failed_download_leaves_no_file(tupper, box, tmp_path):
    ended = tupper("cp", f"{box}:/no/such/file", str(tmp_path / "x"))
    assert ended.code == 1
    assert "/no/such/file" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_port_is_reachable(tupper, sandbox, box):
    server = sandbox.commands.run(
        "python3 -m http.server 8123 --bind 127.0.0.1", background=True, cwd="/etc", timeout=0
    )
    address = tupper("port", box, "8123").out.strip()
    assert tupper("port", box, "8123").out.strip() == address
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for attempt in range(100):
        try:
            with opener.open(f"http://{address}/hostname", timeout=10) as answer:
                assert answer.read()
            break
        except OSError:
            if attempt == 99:
                raise
            sandbox.commands.run("sleep 0.1")
    server.kill()


def test_stats_and_logs(tupper, box):
    assert box in json.loads(tupper("stats", "--json", box).out)
    assert box in tupper("stats").out
    assert tupper("logs", box).code == 0


def test_watch_prints_changes(tupper_raw, sandbox, box):
    sandbox.files.make_dir("/tmp/watched")
    process = tupper_raw("watch", "--json", box, "/tmp/watched")
    for number in range(200):
        sandbox.files.write(f"/tmp/watched/f{number}", "x")
        sandbox.commands.run("sleep 0.05")
        if number >= 20:
            break
    line = json.loads(process.stdout.readline())
    assert line["type"] in {"create", "write", "chmod"}
    process.terminate()
    process.wait(30)


def test_timeout_moves_the_end(tupper, named):
    before = named.get_info().end_at
    assert tupper("timeout", named.sandbox_id, "1h").code == 0
    assert (named.get_info().end_at - before).total_seconds() > 1000
    assert tupper("timeout", "--idle", named.sandbox_id, "30m").code == 0
    assert named.get_info().idle_timeout == 1800


def test_doctor_says_what_works(tupper):
    assert "usable" in tupper("doctor").out
    found = {probe["backend"]: probe for probe in json.loads(tupper("doctor", "--json").out)}
    assert found["gvisor"]["usable"]
    assert found["gvisor"]["isolation"] == "user-kernel"


def test_setup_can_be_repeated(tupper):
    first, second = tupper("setup", limit_s=170), tupper("setup", limit_s=170)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "base is ready" in second.out


def test_config_shows_places_and_hides_keys(tupper):
    ended = tupper("config", "--json", env={"TUPPER_API_KEY": "secret-of-mine"})
    assert json.loads(ended.out)["places"]["data"] == os.environ["TUPPER_HOME"]
    assert "secret-of-mine" not in ended.out


def test_templates_and_images_are_listed(tupper):
    assert "base" in tupper("template", "list", "-q").out.split()
    assert isinstance(json.loads(tupper("image", "list", "--json").out), list)


def test_volumes(tupper):
    made = json.loads(tupper("volume", "create", "cli-data", "--json").out)
    assert "cli-data" in tupper("volume", "list", "-q").out.split()
    assert [each["id"] for each in json.loads(tupper("volume", "list", "--json").out)] == [
        made["id"]
    ]
    given = ("--volume", "cli-data:/mnt/data", "--", "echo kept >> /mnt/data/f; cat /mnt/data/f")
    assert tupper("run", *given).out == "kept\n"
    assert tupper("run", *given).out == "kept\nkept\n"
    assert tupper("run", "--volume", "cli-data", "true").code != 0
    assert tupper("volume", "remove", "cli-data").code == 0
    assert tupper("volume", "remove", "cli-data").code == 1
    assert tupper("volume", "list", "-q").out == ""


def test_keys_are_shown_once(tupper):
    made = json.loads(tupper("key", "create", "--label", "ci", "--json").out)
    listed = tupper("key", "list", "--json").out
    assert made["key"] not in listed
    assert made["id"] in listed
    assert tupper("key", "remove", made["id"]).code == 0
    assert made["id"] not in tupper("key", "list", "-q").out


def test_help_is_quick_because_nothing_heavy_is_imported():
    heavy = ("httpx2", "starlette", "uvicorn", "yaml", "asyncio", "sqlite3", "ssl")
    program = (
        "import sys\nfrom tupper.cli import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "[]\n"


def test_serve_takes_the_place_of_the_background_process(tupper, tupper_raw, box):
    for key in tupper("key", "list", "-q").out.split():
        tupper("key", "remove", key)
    server = tupper_raw("serve", "--listen", "127.0.0.1:0")
    lines = iter(server.stderr.readline, b"")
    url = next(line for line in lines if b"listening on http" in line).split()[-1].decode()
    said = [next(lines).decode(), next(lines).decode(), next(lines).decode()]
    assert f"E2B_API_URL={url} E2B_SANDBOX_URL={url}" in said[1]
    key = said[2].strip().removeprefix("export E2B_API_KEY=")
    request = urllib.request.Request(f"{url}/v2/sandboxes", headers={"X-API-KEY": key})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        assert answer.status == 200
    assert tupper("exec", box, "--", "echo", "still here").out == "still here\n"
    second = tupper("serve")
    assert second.code == 1
    assert "another background process serves" in second.err
    server.terminate()
    assert server.wait(30) == 0
    assert tupper("exec", box, "--", "echo", "and after").out == "and after\n"


def test_pause_resume_snapshot_fork(tupper, named):
    name = named.sandbox_id
    assert tupper("write", name, "/tmp/f", given=b"kept").code == 0
    assert tupper("pause", name).out == name + "\n"
    assert json.loads(tupper("info", "--json", name).out)["state"] == "paused"
    refused = tupper("exec", name, "--", "true")
    assert refused.code == 125
    assert f"tupper resume {name}" in refused.err
    assert tupper("resume", name, "--timeout", "10m").code == 0
    assert tupper("read", name, "/tmp/f").out == "kept"
    made = tupper("snapshot", "create", name, "--name", "cli-test:v1").out.strip()
    try:
        assert made in tupper("snapshot", "list", "-q").out.split()
        forked = tupper("fork", name, "-n", "2").out.split()
        started = tupper("create", "--template", "cli-test:v1").out.strip()
        for each in (*forked, started):
            assert tupper("read", each, "/tmp/f").out == "kept"
        assert tupper("kill", *forked, started).code == 0
    finally:
        assert tupper("snapshot", "remove", made).code == 0
    assert tupper("snapshot", "remove", made).code == 1
