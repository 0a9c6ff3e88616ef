"""QEMU's machine protocol: commands rendered, what QEMU says parsed. No I/O.

One JSON object a line. QEMU greets first, wants ``qmp_capabilities``, and then answers commands in
their order; events come in between. What comes from QEMU may come from a guest that has taken it
over: every line has a limit, and every field is checked.

Source: QEMU 7.2, docs/interop/qmp-spec.txt; qapi/{control,run-state,migration}.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tupper.core.errors import GuestMisbehaved
from tupper.protocol.connect import as_object, parse_json

# The longest honest answer, the list of all commands, has 60 KiB.
LINE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message.

    Args:
        version: such as ``7.2.22``.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A command was done.

    Args:
        name: that the command was sent with.
        value: what it returned; an empty mapping if nothing.
    """

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Refusal:
    """A command was not done.

    Args:
        name: that the command was sent with; empty if QEMU could not even read that.
        kind: its class, such as ``GenericError``.
        text: for people.
    """

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened.

    Args:
        name: such as ``STOP``.
        data: more about it.
    """

    name: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])


Message = Greeting | Answer | Refusal | Event


def render(command: str, arguments: Mapping[str, object] | None = None, *, name: str) -> bytes:
    """One command as a line.

    Args:
        command: such as ``query-status``.
        arguments: of it.
        name: comes back with the answer.
    """
    message: dict[str, object] = {"execute": command, "id": name}
    if arguments:
        message["arguments"] = dict(arguments)
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Parser:
    """Turns bytes as they come into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now.

        Raises:
            GuestMisbehaved: what no QEMU says.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, [*lines, self._rest])) > LINE_MAX:
            raise GuestMisbehaved(f"QEMU said a line of more than {LINE_MAX} bytes")
        return [parse(line) for line in lines if line.strip()]


def parse(line: bytes) -> Message:
    """One line as a message.

    Raises:
        GuestMisbehaved: it is none.
    """
    message = as_object(parse_json(line, "QEMU"))
    if message is None:
        raise GuestMisbehaved("QEMU said something that is no message")
    name = message.get("id")
    name = name if isinstance(name, str) else ""
    if "return" in message:
        return Answer(name, message["return"])
    if (error := as_object(message.get("error"))) is not None:
        return Refusal(name, _text(error, "class"), _text(error, "desc"))
    if isinstance(event := message.get("event"), str):
        return Event(event, as_object(message.get("data")) or {})
    if (greeting := as_object(message.get("QMP"))) is not None:
        return Greeting(_version(greeting))
    raise GuestMisbehaved("QEMU said a message of no known kind")


def _version(greeting: Mapping[str, object]) -> str:
    numbers = as_object((as_object(greeting.get("version")) or {}).get("qemu")) or {}
    parts = [numbers.get(name) for name in ("major", "minor", "micro")]
    return ".".join(str(part) for part in parts if isinstance(part, int))


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value[:1000] if isinstance(value, str) else ""
