"""The Connect protocol: what we write is what it says, and hostile streams end in one error."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import connect
from tupper.protocol.connect import Code, ConnectError, Decoder, EndOfStream, Message


def test_a_message_has_flags_length_and_payload():
    assert connect.render_message({"a": "é"}) == b'\x00\x00\x00\x00\x0a{"a":"\xc3\xa9"}'


def test_the_end_has_flag_two_and_the_error():
    data = connect.render_end(ConnectError(Code.NOT_FOUND, "no such thing"))
    assert data[0] == 2
    [end] = connect.collect(Decoder(), [data])
    assert isinstance(end, EndOfStream)
    assert end.error is not None
    assert (end.error.code, end.error.message) == (Code.NOT_FOUND, "no such thing")


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 40), max_size=30))
def test_envelopes_come_out_whole_however_the_bytes_come(payloads, cuts):
    data = b"".join(map(connect.encode_envelope, payloads)) + connect.render_end()
    chunks = []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    found = connect.collect(Decoder(), [*chunks, data])
    assert found[:-1] == [Message(payload) for payload in payloads]
    assert isinstance(found[-1], EndOfStream)


@given(st.binary(max_size=2000))
def test_any_bytes_give_envelopes_or_one_error(data):
    decoder = Decoder(message_max=1000)
    try:
        decoder.feed(data)
        decoder.close()
    except GuestMisbehaved:
        pass


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">BI", 0, 2**32 - 1),
        struct.pack(">BI", 123, 2) + b"{}",
        struct.pack(">BI", 1, 2) + b"{}",  # compressed: never offered
        connect.render_end() + connect.render_message({}),
        connect.render_end() + b"\x00",
        connect.encode_envelope(b"[]", end=True),
        connect.encode_envelope(b"\xff\xfe", end=True),
        connect.encode_envelope(b"{", end=True),
    ],
)
def test_TB107_hostile_framing_is_refused(data):
    with pytest.raises(GuestMisbehaved):
        Decoder().feed(data)


@pytest.mark.parametrize("data", [b"", b"\x00\x00", connect.render_message({"a": 1})[:-1]])
def test_a_stream_that_stops_early_is_refused(data):
    decoder = Decoder()
    decoder.feed(data)
    with pytest.raises(GuestMisbehaved):
        decoder.close()


def test_TB107_endless_data_does_not_grow_the_decoder():
    decoder = Decoder(message_max=1 << 20)
    one = connect.encode_envelope(b"x" * 30_000)
    tracemalloc.start()
    try:
        for _ in range(3_000):  # 90 MB pass through
            assert len(decoder.feed(one)) == 1
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b"9" * 10_000,
        b"",
        b"{} {}",
        b'"\n"',
    ],
)
def test_TB107_hostile_json_is_refused(data):
    with pytest.raises(GuestMisbehaved) as caught:
        connect.parse_json(data, "thing")
    assert str(caught.value).startswith("thing: ")
    assert len(str(caught.value)) < 300


def test_every_code_has_a_status_and_odd_ones_are_unknown():
    assert {code.http_status for code in Code} <= set(range(400, 600))
    assert connect.code_from_text("not_found") is Code.NOT_FOUND
    assert connect.code_from_text("gone_fishing") is Code.UNKNOWN
    assert connect.code_from_text(404) is Code.UNKNOWN


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID_ARGUMENT),
        (401, Code.UNAUTHENTICATED),
        (413, Code.RESOURCE_EXHAUSTED),
        (502, Code.UNAVAILABLE),
        (507, Code.RESOURCE_EXHAUSTED),
        (418, Code.UNKNOWN),
    ],
)
def test_a_plain_http_error_is_mapped_by_its_status(status, code):
    assert connect.parse_error({"message": "m", "code": status}, status=status).code is code


def test_an_error_keeps_its_details_and_bounds_its_text():
    error = connect.parse_error(
        {
            "code": "resource_exhausted",
            "message": "x" * 100_000 + "\ud800",
            "details": [{"type": "tupper.limit", "value": "", "debug": {"limit": "disk"}}, 5, None],
        }
    )
    assert error.details == {"tupper.limit": {"limit": "disk"}}
    assert len(error.message) < 5_000


def test_an_error_body_of_any_shape_is_an_error():
    for body in (None, 5, [], "text", {"code": {}, "message": []}):
        assert connect.parse_error(body, status=500).code is Code.INTERNAL
    connect.parse_error({"message": "\ud800"}).message.encode()
