"""Server-sent events: from the bytes of a stream to its messages. No I/O.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, 9.2.6. What a stream of
ours does not have is left out: byte order marks, ``retry``, lines that end with CR alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tupper.core.errors import GuestMisbehaved

_LINE_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Args:
        place: the ``id`` in force; to be sent as ``Last-Event-ID`` by who comes back.
        data: its lines, joined.
    """

    place: str
    data: str


class Decoder:
    """Takes pieces of a stream, however they are cut.

    Attributes:
        place: the last ``id`` that was seen.
    """

    def __init__(self) -> None:
        self.place = ""
        self._rest = b""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that are complete now.

        Raises:
            GuestMisbehaved: a line that does not end.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LINE_MAX:
            raise GuestMisbehaved(f"a line of an event stream is longer than {_LINE_MAX} bytes")
        found = [self._line(line.removesuffix(b"\r").decode(errors="replace")) for line in lines]
        return [message for message in found if message is not None]

    def restart(self) -> None:
        """The stream broke; another begins, perhaps at the same place."""
        self._rest = b""
        self._data = []

    def _line(self, line: str) -> Message | None:
        if not line:
            data, self._data = self._data, []
            return Message(self.place, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id" and "\0" not in value:
            self.place = value
        elif name == "data":
            self._data.append(value)
        return None
