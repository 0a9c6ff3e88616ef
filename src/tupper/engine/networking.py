"""Changing what a running sandbox may reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tupper.core.errors import Unsupported
from tupper.engine.context import Context
from tupper.engine.ending import attachment_from_json
from tupper.engine.sandbox import Sandbox


async def change_network(context: Context, sandbox: Sandbox, changes: Mapping[str, object]) -> None:
    """Put a new policy in force, then on record. The caller holds the sandbox's lock.

    Args:
        context: the engine's.
        sandbox: a running one.
        changes: of the record's fields that make up its policy.

    Raises:
        InvalidArgument: the policy; the old one stays.
        Unsupported: the sandbox has no network of its own.
    """
    record = sandbox.record
    if record.attachment is None:
        raise Unsupported(f"sandbox {sandbox.id}", "a change of its network", "it has none")
    wanted = replace(record, **changes)  # type: ignore[arg-type]
    attachment = attachment_from_json(record.attachment)
    await context.parts.network.update(attachment, context.parts.policy(wanted))
    sandbox.change(**changes)
    await context.store.save(sandbox.record)
