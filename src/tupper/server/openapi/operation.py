"""What an operation of the API is, for the tables of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tupper.server.openapi.shapes import Schema

JSON = "application/json"
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
BYTES = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query.

    Args:
        name: as sent.
        schema: its values.
        text: for people.
        is_required: whether it must be there.
    """

    name: str
    schema: Schema
    text: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Args:
        schema: of its body; None for an empty one.
        kind: its content type.
        also: another content type with a text.
    """

    schema: Schema | None = None
    kind: str = JSON
    also: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    Args:
        method, path: of the route.
        group: heading in the docs.
        text: what it does.
        replies: by status; errors are the same for all.
        body: names of shapes, any of which the body may have.
        bytes_in: whether the body is a file.
        query: parameters.
        is_open: whether it asks for no key.
        has_token: whether it asks for a volume's token instead of a key.
    """

    method: str
    path: str
    group: str
    text: str
    replies: dict[int, Reply]
    body: tuple[str, ...] = ()
    bytes_in: bool = False
    query: tuple[Query, ...] = field(default_factory=tuple[Query, ...])
    is_open: bool = False
    has_token: bool = False


NOTHING = {204: Reply()}
