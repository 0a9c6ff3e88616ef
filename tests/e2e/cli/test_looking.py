"""``tupper top``, and that documents in JSON have the keys that docs/cli.md promises."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from unit.cli.test_json import promised


def test_one_table_where_nobody_looks(tupper, box):
    shown = tupper("top", "--once")
    assert shown.code == 0, shown.err
    assert box in shown.out
    assert "\x1b" not in shown.out
    rows = json.loads(tupper("top", "--json").out)
    (row,) = [row for row in rows if row["sandbox_id"] == box]
    assert list(row) == promised()["top"][1]
    assert list(row["metrics"]) == promised()["stats"][1]
    assert row["metrics"]["mem_used"] > 0


def test_a_live_table_gives_the_terminal_back(box):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "tupper", "top", "-d", "1s"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[H") < 2:  # it was drawn, and drawn again
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # the other side is closed
    os.close(ours)
    assert process.returncode == 130
    assert box.encode() in shown
    assert shown.startswith(b"\x1b[?1049h")
    assert shown.rstrip(b"\r\n").endswith(b"\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize(
    "verb", ["list", "image list", "template list", "snapshot list", "volume list", "key list"]
)
def test_keys_of_lists_are_those_that_are_promised(tupper, box, verb):
    made = {"snapshot list": ["snapshot", "create", box], "key list": ["key", "create"]}
    made["volume list"] = ["volume", "create", f"json-{os.getpid()}"]
    undo = {"snapshot list": "snapshot", "volume list": "volume"}
    thing = tupper(*made[verb]).out.strip() if verb in made else ""
    shown = tupper(*verb.split(), "--json")
    assert shown.code == 0, shown.err
    rows = json.loads(shown.out)
    assert rows
    wanted = promised()["info" if verb == "list" else verb][1]
    assert {tuple(sorted(row)) for row in rows} == {tuple(sorted(wanted))}
    if verb in undo:
        assert tupper(undo[verb], "remove", thing).code == 0
    if verb == "key list":
        for row in rows:
            assert tupper("key", "remove", row["id"]).code == 0


def test_an_ended_one_is_found_by_the_beginning_of_its_id(tupper):
    name = tupper("create", "--name", f"gone-{os.getpid()}").out.strip()
    assert tupper("kill", f"gone-{os.getpid()}").code == 0
    for word in (name[:10], f"gone-{os.getpid()}"):
        assert json.loads(tupper("info", "--json", word).out)["sandbox_id"] == name
        assert tupper("logs", word).code == 0
        assert tupper("snapshot", "list", word).code == 0
