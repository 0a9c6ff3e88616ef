"""Server-sent events, however the stream is cut."""

import pytest

from tupper.core.errors import GuestMisbehaved
from tupper.protocol.sse import Decoder, Message

STREAM = b"id: m-1\n\n: nothing new\n\nid: m-2\r\nevent: created\r\ndata: {\r\ndata:}\r\n\r\nid\ndata: \xff\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size(size):
    decoder, found = Decoder(), []
    for start in range(0, len(STREAM), size):
        found += decoder.feed(STREAM[start : start + size])
        if found:
            break
    assert found[0] == Message("m-2", "{\n}")


def test_an_id_without_data_is_remembered_and_no_message():
    decoder = Decoder()
    assert decoder.feed(b"id: m-1\n\n") == []
    assert decoder.place == "m-1"
    assert decoder.feed(STREAM)[1] == Message("", "\ufffd")


def test_half_a_message_is_gone_after_a_break():
    decoder = Decoder()
    assert decoder.feed(b"id: m-1\n\ndata: ha") == []
    decoder.restart()
    assert decoder.feed(b"data: whole\n\n") == [Message("m-1", "whole")]


def test_a_line_without_an_end_is_refused():
    with pytest.raises(GuestMisbehaved, match="longer"):
        Decoder().feed(b"x" * (1 << 21))
