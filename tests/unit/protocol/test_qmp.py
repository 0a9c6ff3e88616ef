import json

import pytest

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import qmp

GREETING = (
    b'{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"},'
    b' "capabilities": ["oob"]}}\r\n'
)


def test_a_command_is_one_line():
    line = qmp.render("getfd", {"fdname": "a\nb"}, name="7")
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"execute": "getfd", "id": "7", "arguments": {"fdname": "a\nb"}}
    assert b"arguments" not in qmp.render("stop", name="1")


def test_a_conversation_in_pieces():
    said = (
        GREETING
        + b'{"return": {}, "id": "1"}\r\n'
        + b'{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "STOP"}\r\n'
        + b'{"event": "MIGRATION", "data": {"status": "completed"}}\n'
        + b'{"id": "2", "error": {"class": "GenericError", "desc": "no"}}\r\n'
    )
    parser, found = qmp.Parser(), []
    for at in range(0, len(said), 7):
        found += parser.feed(said[at : at + 7])
    assert found == [
        qmp.Greeting("7.2.22"),
        qmp.Answer("1", {}),
        qmp.Event("STOP"),
        qmp.Event("MIGRATION", {"status": "completed"}),
        qmp.Refusal("2", "GenericError", "no"),
    ]


@pytest.mark.parametrize(
    "line",
    [b"[]", b"7", b"nonsense", b"\xff\xfe", b"{}", b'{"event": 7}', b'{"QMP": 1}', b"[" * 100_000],
)
def test_what_no_qemu_says(line):
    with pytest.raises(GuestMisbehaved):
        qmp.Parser().feed(line + b"\n")


def test_a_line_has_a_limit():
    parser = qmp.Parser()
    assert parser.feed(b"x" * qmp.LINE_MAX) == []
    with pytest.raises(GuestMisbehaved, match="bytes"):
        parser.feed(b"x")


def test_fields_of_the_wrong_kind_are_empty():
    assert qmp.parse(b'{"return": 1, "id": 5}') == qmp.Answer("", 1)
    assert qmp.parse(b'{"error": {"class": 1, "desc": []}}') == qmp.Refusal("", "", "")
    assert qmp.parse(b'{"event": "X", "data": 3}') == qmp.Event("X", {})
    assert qmp.parse(b'{"QMP": {"version": {"qemu": {"major": "x"}}}}') == qmp.Greeting("")
