"""``tupper events``: what happens, while it happens."""

import json
import os
import signal

from tupper import Sandbox


def listening(tupper_raw, *arguments):
    process = tupper_raw("events", *arguments)
    assert b"listening" in process.stderr.readline()
    return process


def test_a_life_line_by_line(tupper_raw):
    label = f"events={os.getpid()}"
    process = listening(tupper_raw, "--json", "-n", "2", "-l", label)
    with Sandbox.create(metadata=dict([label.split("=")])) as box:
        pass
    out, _ = process.communicate(timeout=60)
    created, ended = map(json.loads, out.decode().splitlines())
    assert (created["type"], created["sandbox_id"]) == ("created", box.sandbox_id)
    assert (ended["type"], ended["reason"]) == ("ended", "killed")
    assert process.returncode == 0


def test_words_for_people_and_ctrl_c(tupper_raw, sandbox):
    process = listening(tupper_raw, sandbox.sandbox_id[:12])
    assert sandbox.pause() is True
    line = process.stdout.readline().decode()
    assert "paused" in line
    assert sandbox.sandbox_id in line
    assert "\x1b" not in line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    sandbox.connect()


def test_no_such_sandbox(tupper):
    ended = tupper("events", "nobody")
    assert ended.code == 1
    assert "nobody" in ended.err
