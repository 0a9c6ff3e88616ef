"""The agent's messages: honest ones in every allowed spelling, hostile ones refused."""

import contextlib
import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import envd
from tupper.protocol.envd import EventType, FileType, ProcessEvents, Stream


def event(**kind):
    return json.dumps({"event": kind}).encode()


START = event(start={"pid": 7})
END = event(end={"exited": True, "status": "exit status 0"})


def test_a_command_from_start_to_end():
    events = ProcessEvents()
    assert events.accept(START) == envd.ProcessStart(7)
    assert events.accept(event(data={"stdout": "aGk=", "offset": "12"})) == envd.ProcessData(
        Stream.STDOUT, b"hi", 12
    )
    assert events.accept(event(keepalive={})) == envd.KeepAlive()
    assert events.accept(END) == envd.ProcessEnd(0, exited=True, status="exit status 0")
    assert events.end is not None


def test_our_own_keys_are_read():
    end = event(end={"exitCode": -1, "status": "signal: killed", "signal": 9, "limit": "memory"})
    parsed = envd.parse_process_message(end)
    assert isinstance(parsed, envd.ProcessEnd)
    assert (parsed.exit_code, parsed.signal, parsed.limit) == (-1, 9, "memory")
    data = envd.parse_process_message(event(data={"pty": "", "offset": 5}))
    assert data == envd.ProcessData(Stream.PTY, b"", 5)
    gap = envd.parse_process_message(event(gap={"stream": "stderr", "bytes": "4"}))
    assert gap == envd.ProcessGap(Stream.STDERR, 4)


def test_unknown_kinds_of_events_are_ignored():
    assert envd.parse_process_message(event(novelty={"a": 1})) == envd.KeepAlive()


@pytest.mark.parametrize(
    "messages",
    [
        [START, START],
        [event(data={"stdout": ""})],
        [END],
        [START, END, END],
        [START, END, event(data={"stdout": "aGk="})],
    ],
    ids=["two starts", "data first", "end first", "two ends", "data after end"],
)
def test_TB107_a_stream_out_of_order_is_refused(messages):
    events = ProcessEvents()
    for message in messages[:-1]:
        events.accept(message)
    with pytest.raises(GuestMisbehaved):
        events.accept(messages[-1])


@pytest.mark.parametrize(
    "message",
    [
        b"[]",
        b"{}",
        b'{"event": []}',
        event(start={}),
        event(start={"pid": 0}),
        event(start={"pid": -5}),
        event(start={"pid": 2**40}),
        event(start={"pid": True}),
        event(start={"pid": 1.5}),
        event(data={}),
        event(data={"stdout": "aGk=", "stderr": "aGk="}),
        event(data={"stdout": "not base64!"}),
        event(data={"stdout": 5}),
        event(data={"stdout": "aGk=", "offset": -1}),
        event(gap={"stream": "stdin", "bytes": 4}),
        event(gap={"stream": "stdout", "bytes": -4}),
        event(end={"exitCode": 10**30}),
        event(end={"exitCode": "zero"}),
        event(end={"status": ["x"]}),
        event(end={"status": "\ud800"}),
        event(end={"exited": "yes"}),
    ],
)
def test_TB107_wrong_fields_are_refused(message):
    with pytest.raises(GuestMisbehaved):
        envd.parse_process_message(message)


ENTRY = {
    "name": "f",
    "type": "FILE_TYPE_FILE",
    "path": "/home/user/f",
    "size": "12",
    "mode": 420,
    "permissions": "-rw-r--r--",
    "owner": "user",
    "group": "user",
    "modifiedTime": "2026-11-29T10:00:00.123456789+02:00",
}


def test_an_entry_in_both_spellings():
    entry = envd.parse_entry(ENTRY)
    assert (entry.type, entry.size, entry.mode) == (FileType.FILE, 12, 0o644)
    assert entry.modified_time == dt.datetime(2026, 11, 29, 8, 0, 0, 123456, dt.UTC)
    link = envd.parse_entry({"name": "l", "type": 1, "symlink_target": "/t", "size": 3})
    assert (link.type, link.symlink_target, link.size) == (FileType.FILE, "/t", 3)
    assert envd.parse_entry({"name": "l", "isSymlink": True}).type is FileType.SYMLINK
    assert envd.parse_entry({"type": "FILE_TYPE_NEW"}).type is FileType.UNSPECIFIED


@pytest.mark.parametrize(
    "change",
    [
        {"size": "1e3"},
        {"mode": -1},
        {"path": None, "name": 3},
        {"modifiedTime": "yesterday"},
        {"modifiedTime": "2026-13-29T10:00:00Z"},
        {"modifiedTime": "0001-01-01T00:00:00+14:00"},
        {"metadata": {"a": 1}},
        {"metadata": ["a"]},
        {"symlinkTarget": {}},
    ],
)
def test_TB107_hostile_entries_are_refused(change):
    with pytest.raises(GuestMisbehaved):
        envd.parse_entries_reply({"entries": [ENTRY | change]})


def test_watch_messages():
    def message(**kind):
        return json.dumps(kind).encode()

    assert envd.parse_watch_message(message(start={})) == envd.WatchStart()
    assert envd.parse_watch_message(message(keepalive={})) == envd.KeepAlive()
    found = envd.parse_watch_message(
        message(filesystem={"name": "a/b", "type": "EVENT_TYPE_CREATE", "entry": ENTRY})
    )
    assert isinstance(found, envd.FilesystemEvent)
    assert (found.name, found.type) == ("a/b", EventType.CREATE)
    assert found.entry is not None
    assert envd.parse_watcher_events({"events": [{"name": "x", "type": 4}]})[0].type is (
        EventType.RENAME
    )


def test_processes_metrics_status():
    [process] = envd.parse_processes_reply(
        {"processes": [{"config": {"cmd": "/bin/bash", "args": ["-l"]}, "pid": 3, "tag": "t"}]}
    )
    assert (process.pid, process.tag, process.args, process.cwd) == (3, "t", ("-l",), None)
    assert envd.parse_processes_reply({}) == ()
    metrics = envd.parse_metrics({"ts": 5, "cpu_count": 2, "cpu_used_pct": 1.5, "mem_total": 9})
    assert (metrics.cpu_used_pct, metrics.mem_total, metrics.disk_used) == (1.5, 9, 0)
    with pytest.raises(GuestMisbehaved):
        envd.parse_metrics(json.loads('{"cpu_used_pct": 1e999}'))


def test_the_status_of_our_agent():
    status = envd.parse_status(
        {"version": "0.1.0", "protocol": 1, "envdVersion": "0.6.13", "sandboxId": "i", "held": False,
         "startedAt": 1500, "lastActivity": 2500, "activeStreams": 1, "processes": 2,
         "limitsHit": ["pids"]}
    )  # fmt: skip
    assert (status.started_at, status.last_activity) == (1.5, 2.5)
    assert (status.processes, status.limits_hit) == (2, ("pids",))
    with pytest.raises(GuestMisbehaved):
        envd.parse_status({"limitsHit": [1]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["event", "start", "data", "end", "pid", "stdout", "entries", "entry",
                         "type", "size", "filesystem", "processes", "config", "name"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(json_values)
def test_any_json_is_parsed_or_refused(value):
    payload = json.dumps(value).encode()
    for parse in (
        lambda: envd.parse_process_message(payload),
        lambda: envd.parse_watch_message(payload),
        lambda: envd.parse_entries_reply(value),
        lambda: envd.parse_processes_reply(value),
        lambda: envd.parse_metrics(value),
        lambda: envd.parse_status(value),
    ):
        with contextlib.suppress(GuestMisbehaved):
            parse()


def test_requests():
    assert envd.render_start("ls", ["-l"], envs={"A": "b"}, cwd="/", pty=(80, 24)) == {
        "process": {"cmd": "ls", "args": ["-l"], "envs": {"A": "b"}, "cwd": "/"},
        "stdin": False,
        "pty": {"size": {"cols": 80, "rows": 24}},
    }
    assert envd.render_attach(envd.render_selector(5), {Stream.STDOUT: 10}) == {
        "process": {"pid": 5},
        "tupper": {"stdout": 10},
    }
    assert envd.render_input(envd.render_selector(tag="t"), b"hi", pty=True) == {
        "process": {"tag": "t"},
        "input": {"pty": "aGk="},
    }
