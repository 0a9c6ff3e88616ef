"""Finding a living sandbox by what its user calls it."""

from __future__ import annotations

from collections.abc import Mapping

from tupper.core.errors import InvalidArgument, SandboxNotFound
from tupper.core.ids import is_sandbox_id
from tupper.engine.sandbox import Sandbox


def find_sandbox(
    sandboxes: Mapping[str, Sandbox], reference: str, owner_key: str | None = None
) -> Sandbox:
    """By id, name, an id with a client's suffix, or a unique beginning of an id.

    Args:
        sandboxes: all that live, by id.
        reference: which.
        owner_key: only one of this API key's; None for anybody's.

    Raises:
        SandboxNotFound: there is none.
        InvalidArgument: it begins several ids.
    """
    if owner_key is not None:
        sandboxes = {k: s for k, s in sandboxes.items() if s.record.owner_key == owner_key}
    if sandbox := sandboxes.get(reference):
        return sandbox
    named = [s for s in sandboxes.values() if s.record.name == reference]
    if named:
        return min(named, key=lambda sandbox: sandbox.record.owner_key)  # the user's own first
    head = reference.split("-", 1)[0]
    if is_sandbox_id(head):
        if sandbox := sandboxes.get(head):
            return sandbox
    elif len(reference) >= 3:
        begun = [s for s in sandboxes.values() if s.id.startswith(reference)]
        if len(begun) == 1:
            return begun[0]
        if begun:
            raise InvalidArgument(f"{reference!r} begins the ids of {len(begun)} sandboxes")
    raise SandboxNotFound(f"sandbox {reference!r} was not found")
