"""The part of the Connect protocol that agents and clients speak: envelopes, errors, no I/O.

Unary calls are JSON over POST; a failed one answers an HTTP status and ``{"code", "message"}``.
Streams answer HTTP 200 and then *envelopes*: one byte of flags, four bytes of big-endian length,
the payload. Flags 0 is a message; flags 2 ends the stream and carries ``{}`` or ``{"error": …}``.

The other side may be a hostile guest, so the decoder holds at most one envelope of bounded size,
refuses every flag it does not know, and refuses data after the end. Whatever no honest agent sends
is :class:`~tupper.core.errors.GuestMisbehaved`; what it honestly reports is :class:`ConnectError`.

Source: connectrpc.com/docs/protocol ("Streaming RPCs", "Error codes", "Error end-stream").
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from tupper.core.errors import GuestMisbehaved

CONTENT_TYPE_UNARY = "application/json"
CONTENT_TYPE_STREAM = "application/connect+json"
VERSION_HEADER = "Connect-Protocol-Version"
TIMEOUT_HEADER = "Connect-Timeout-Ms"

MESSAGE_MAX = 4 * 1024 * 1024  # bytes; the agent's largest data event is 32 KiB before base64
ERROR_TEXT_MAX = 4096  # characters of a guest's message that we keep

_HEADER = struct.Struct(">BI")
_FLAG_MESSAGE = 0x00
_FLAG_END = 0x02


class Code(StrEnum):
    """The codes of Connect errors."""

    CANCELED = "canceled"
    UNKNOWN = "unknown"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    ABORTED = "aborted"
    OUT_OF_RANGE = "out_of_range"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    DATA_LOSS = "data_loss"
    UNAUTHENTICATED = "unauthenticated"

    @property
    def http_status(self) -> int:
        """The status of a unary answer with this code."""
        return _STATUS_OF_CODE[self]


_STATUS_OF_CODE: Mapping[Code, int] = {
    Code.CANCELED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

# What a plain HTTP error of a proxy or of a non-Connect route means.
_CODE_OF_STATUS: Mapping[int, Code] = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
    507: Code.RESOURCE_EXHAUSTED,
}


def code_from_status(status: int) -> Code:
    """The code for an HTTP status that came without one."""
    return _CODE_OF_STATUS.get(status, Code.UNKNOWN)


def code_from_text(text: object) -> Code:
    """The code by its name on the wire; ``UNKNOWN`` for anything else, as the protocol says."""
    try:
        return Code(text) if isinstance(text, str) else Code.UNKNOWN
    except ValueError:
        return Code.UNKNOWN


class ConnectError(Exception):
    """An error that the other side reported.

    Not one of the tree in ``core.errors``: it is a message of the protocol, which the layer that
    made the call translates by ``code`` into what its user should see.

    Args:
        code: what kind.
        message: for people; from a guest, at most ``ERROR_TEXT_MAX`` characters.
        details: the debug values of its details by their type; ours, such as ``{"limit": "disk"}``.
    """

    def __init__(
        self, code: Code, message: str, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details: Mapping[str, object] = details or {}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream: its JSON, still as bytes."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The last envelope of a stream.

    Args:
        error: why the call failed; None when it did not.
    """

    error: ConnectError | None = None


Envelope = Message | EndOfStream


def parse_json(data: bytes | bytearray | memoryview, what: str) -> object:
    """Parse JSON from a guest.

    Args:
        data: UTF-8 text.
        what: names the message in the error.

    Errors:
        GuestMisbehaved: not UTF-8, not JSON, nested deeper than the parser's stack, a number that
        JSON does not know (``NaN``) or that is absurdly long.
    """
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise GuestMisbehaved(f"{what}: not UTF-8 at byte {error.start}") from None
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise GuestMisbehaved(f"{what}: JSON is nested too deeply") from None
    except ValueError as error:
        raise GuestMisbehaved(f"{what}: not JSON: {_shorten(str(error), 200)}") from None
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def render_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def render_message(value: object) -> bytes:
    """One message in its envelope."""
    return encode_envelope(render_json(value))


def encode_envelope(payload: bytes, *, end: bool = False) -> bytes:
    """Put a payload into an envelope."""
    return _HEADER.pack(_FLAG_END if end else _FLAG_MESSAGE, len(payload)) + payload


def render_end(error: ConnectError | None = None) -> bytes:
    """The envelope that ends a stream."""
    body: dict[str, object] = {}
    if error is not None:
        body["error"] = {"code": str(error.code), "message": error.message}
    return encode_envelope(render_json(body), end=True)


def parse_error(value: object, *, status: int | None = None) -> ConnectError:
    """The error in a unary answer's body, or under ``error`` of an end of stream.

    Args:
        value: parsed JSON of any shape; nothing in it is trusted.
        status: the HTTP status, which decides where the body has no code (a proxy's answer).
    """
    fallback = Code.UNKNOWN if status is None else code_from_status(status)
    fields = as_object(value)
    if fields is None:
        return ConnectError(fallback, f"HTTP status {status}" if status else "no message")
    code, text = fields.get("code"), fields.get("message")
    known = code_from_text(code) if isinstance(code, str) else fallback
    message = _shorten(text, ERROR_TEXT_MAX) if isinstance(text, str) else ""
    return ConnectError(known, message, _parse_details(fields.get("details")))


def _parse_details(value: object) -> dict[str, object]:
    details: dict[str, object] = {}
    for item in as_list(value) or ():
        fields = as_object(item)
        if fields is not None and isinstance(kind := fields.get("type"), str):
            details[_shorten(kind, 128)] = fields.get("debug")
        if len(details) >= 16:
            break
    return details


def _shorten(text: str, limit: int) -> str:
    """Bounded, and printable as UTF-8: a lone surrogate would break whoever prints it."""
    kept = text if len(text) <= limit else text[:limit] + "…"
    return kept.encode(errors="replace").decode()


def as_object(value: object) -> dict[str, object] | None:
    """The value if it is a JSON object, else None."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value)  # json gives str keys
    return None


def as_list(value: object) -> list[object] | None:
    """The value if it is a JSON array, else None."""
    if isinstance(value, list):
        return cast("list[object]", value)
    return None


class Decoder:
    """Cuts a byte stream into envelopes. Push bytes in, get whole envelopes out.

    Holds at most one incomplete envelope of ``message_max`` bytes, however the bytes come.

    Args:
        message_max: the largest payload that is accepted, bytes.
    """

    def __init__(self, *, message_max: int = MESSAGE_MAX) -> None:
        self._buffer = bytearray()
        self._message_max = message_max
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the end of the stream has been seen."""
        return self._ended

    def feed(self, data: bytes | bytearray | memoryview) -> list[Envelope]:
        """Take the next bytes and return the envelopes that they complete.

        Errors:
            GuestMisbehaved: a length above the limit, unknown flags (compression included, which
            was never offered), data after the end, an end that is not JSON. The decoder is of no
            use afterwards.
        """
        self._buffer += data
        found: list[Envelope] = []
        position = 0
        while (envelope := self._cut(position)) is not None:
            position += _HEADER.size + envelope[1]
            found.append(envelope[0])
        del self._buffer[:position]
        return found

    def close(self) -> None:
        """Say that no more bytes come.

        Errors:
            GuestMisbehaved: the stream stops inside an envelope or without its end.
        """
        if self._buffer:
            raise GuestMisbehaved(f"stream: ends inside an envelope of {len(self._buffer)} bytes")
        if not self._ended:
            raise GuestMisbehaved("stream: ends without an end-of-stream envelope")

    def _cut(self, position: int) -> tuple[Envelope, int] | None:
        buffer = self._buffer
        if self._ended and len(buffer) > position:
            raise GuestMisbehaved("stream: data after its end")
        if len(buffer) - position < _HEADER.size:
            return None
        flags, size = _HEADER.unpack_from(buffer, position)
        if flags not in (_FLAG_MESSAGE, _FLAG_END):
            raise GuestMisbehaved(f"stream: envelope flags {flags:#04x} are unknown")
        if size > self._message_max:
            raise GuestMisbehaved(
                f"stream: envelope of {size} bytes is larger than {self._message_max}"
            )
        start = position + _HEADER.size
        if len(buffer) - start < size:
            return None
        payload = bytes(memoryview(buffer)[start : start + size])
        if flags == _FLAG_MESSAGE:
            return Message(payload), size
        self._ended = True
        return _parse_end(payload), size


def _parse_end(payload: bytes) -> EndOfStream:
    fields = as_object(parse_json(payload or b"{}", "end of stream"))
    if fields is None:
        raise GuestMisbehaved("end of stream: not an object")
    error = fields.get("error")
    return EndOfStream(None if error is None else parse_error(error))


def collect(decoder: Decoder, chunks: Iterable[bytes]) -> list[Envelope]:
    """Feed all chunks and close: for a stream that is already in memory."""
    found = [envelope for chunk in chunks for envelope in decoder.feed(chunk)]
    decoder.close()
    return found
