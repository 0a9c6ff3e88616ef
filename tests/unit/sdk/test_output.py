"""A command's output: decoding and bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper import CommandExitException
from tupper.protocol.envd import ProcessEnd, Stream
from tupper.sdk._shared.output import Text
from tupper.sdk._shared.result import Collector, Output, exit_code, signal_number


@given(st.text(), st.integers(1, 7))
def test_tb009_no_cut_harms_a_character(text, size):
    data = text.encode()
    kept = Text()
    seen = [kept.feed(data[at : at + size]) for at in range(0, len(data), size)]
    seen.append(kept.feed(b"", final=True))
    assert "".join(seen) == kept.render() == text


def test_bytes_that_are_no_text_are_marked():
    kept = Text()
    kept.feed(b"a\xff" + b"\xe2\x82")
    kept.feed(b"", final=True)
    assert kept.render() == "a\ufffd\ufffd"


@given(
    st.lists(
        st.binary(min_size=1, max_size=50).map(lambda b: bytes(97 + c % 26 for c in b)),
        max_size=200,
    ),
    st.integers(2, 300),
)
def test_tb057_beyond_the_limit_both_ends_stay(pieces, limit):
    whole = b"".join(pieces).decode()
    kept = Text(limit)
    for piece in pieces:
        kept.feed(piece)
    text = kept.render()
    if kept.dropped_bytes:
        head, tail = text.split(f"\n[tupper: {kept.dropped_bytes} bytes of output dropped here]\n")
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + len(tail) + kept.dropped_bytes == len(whole)
        assert len(head) + len(tail) <= limit + 100
    else:
        assert text == whole


def test_nothing_is_kept_where_nothing_is_wanted():
    collector = Collector(retain_output=False)
    assert collector.take(Output(Stream.STDOUT, b"x")) == ("x", None, None)
    collector.finish(ProcessEnd(0, exited=True, status="exit status 0"))
    result = collector.result()
    assert (result.stdout, result.stderr, result.dropped_bytes) == (None, None, 0)


def test_tb011_signals_are_exit_codes():
    killed = ProcessEnd(-1, exited=False, status="signal: killed", error="signal: killed")
    assert exit_code(killed) == 137
    assert exit_code(ProcessEnd(-1, exited=False, status="x", signal=11)) == 139
    assert exit_code(ProcessEnd(3, exited=True, status="exit status 3")) == 3
    assert exit_code(ProcessEnd(-1, exited=False, status="unheard of")) == 255
    dumped = ProcessEnd(-1, exited=False, status="signal: segmentation fault (core dumped)")
    assert signal_number(dumped) == 11


def test_a_failure_is_also_the_result():
    collector = Collector()
    collector.take(Output(Stream.STDERR, b"bad"))
    collector.take(Output(Stream.STDOUT, b"out"))
    collector.finish(ProcessEnd(2, exited=True, status="exit status 2", error="exit status 2"))
    with pytest.raises(CommandExitException) as caught:
        collector.result()
    error = caught.value
    assert (error.stdout, error.stderr, error.exit_code, error.error) == (
        "out",
        "bad",
        2,
        "exit status 2",
    )
    assert "bad" in str(error)


def test_bytes_that_were_lost_are_counted():
    collector = Collector()
    collector.take(Output(Stream.STDOUT, b"tail", gap=10))
    collector.finish(ProcessEnd(0, exited=True, status="exit status 0"))
    assert collector.result().dropped_bytes == 10
