"""What happens to sandboxes, in the SDK's words. No I/O."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tupper.protocol import envd
from tupper.sdk._shared.errors import InvalidArgumentException, ProtocolException
from tupper.sdk._shared.info import read_fields, render_metadata


class SandboxEventType(str, Enum):  # noqa: UP042 - prints as the other enums of the SDK do
    """What happened to a sandbox."""

    CREATED = "created"
    PAUSED = "paused"
    RESUMED = "resumed"
    ENDED = "ended"
    LOST = "lost"


@dataclass
class SandboxEvent:
    """Something happened to a sandbox.

    Args:
        type: what. ``lost`` concerns no sandbox: the connection was away for so long that events
            may be missing here, and a list shows how things stand.
        timestamp: aware.
        sandbox_id: whose; empty for ``lost``.
        name: the sandbox's own, if it has one.
        template_id: what it was made from.
        image: the image, if it was made from one.
        metadata: as given at its creation.
        reason: why it ended, such as ``killed`` or ``timeout``; None for other events.
        detail: one line about that.
    """

    type: SandboxEventType
    timestamp: dt.datetime
    sandbox_id: str = ""
    name: str | None = None
    template_id: str = ""
    image: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    reason: str | None = None
    detail: str = ""


def parse_event(text: str) -> SandboxEvent | None:
    """One event; None for a type that this version does not know."""
    try:
        fields = read_fields(json.loads(text), "event")
    except ValueError as error:
        raise ProtocolException(f"the server sent an event that is no JSON: {error}") from error
    try:
        kind = SandboxEventType(fields.text("type"))
    except ValueError:
        return None
    return SandboxEvent(
        type=kind,
        timestamp=envd.parse_time(fields.text("timestamp"), "event: timestamp"),
        sandbox_id=fields.text("sandboxID"),
        name=fields.optional_text("name"),
        template_id=fields.text("templateID"),
        image=fields.optional_text("image"),
        metadata=fields.mapping("metadata"),
        reason=fields.optional_text("reason"),
        detail=fields.text("detail"),
    )


def render_wish(
    sandbox_id: str | None,
    metadata: Mapping[str, str] | None,
    types: Sequence[SandboxEventType | str] | None,
) -> dict[str, str]:
    """The parameters of a subscription."""
    query: dict[str, str] = {}
    if sandbox_id is not None:
        if not sandbox_id:
            raise InvalidArgumentException("the sandbox id is empty")
        query["sandbox"] = sandbox_id
    if metadata:
        query["metadata"] = render_metadata(metadata)
    if types:
        try:
            query["type"] = ",".join(SandboxEventType(kind).value for kind in types)
        except ValueError as error:
            known = ", ".join(kind.value for kind in SandboxEventType)
            raise InvalidArgumentException(f"{error}; known: {known}") from error
    return query
