"""Taking a sandbox down, whatever the cause, until nothing of it is left but its record.

The order: nobody new gets in, the watchers stop, our listeners close, open connections are cut,
the machine ends, then its network, socket and directory go. Each step is tried on its own. A
machine that would not end stays in the table, so that the next kill tries again; everything else
that failed is logged, and the sweep at the next start removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable

from tupper.core.backend import Attachment
from tupper.core.errors import TupperError
from tupper.core.lifecycle import ExitReason, State
from tupper.core.log import event, problem
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.events import Kind
from tupper.engine.sandbox import Sandbox
from tupper.protocol.fields import Fields

# How long processes inside may take after SIGTERM. A kill must be over in 5 s.
KILL_GRACE_S = 0.0
AGAIN_S = 30.0


def begin_end(context: Context, sandbox: Sandbox, reason: ExitReason) -> asyncio.Task[None]:
    """Start to end a sandbox, or join the one who already does. Call with its lock held."""
    if sandbox.ending is None:
        sandbox.ending = asyncio.get_running_loop().create_task(
            _end(context, sandbox, reason), name=f"end {sandbox.id}"
        )
        context.tasks.add(sandbox.ending)
        sandbox.ending.add_done_callback(context.tasks.discard)
        sandbox.ending.add_done_callback(_note_failure)
    return sandbox.ending


async def _end(context: Context, sandbox: Sandbox, reason: ExitReason) -> None:
    try:
        await release(sandbox)
        if sandbox.machine is not None:
            await sandbox.machine.stop(grace_s=KILL_GRACE_S)
    except (TupperError, OSError):
        sandbox.ending = None
        context.spawn(_try_again(context, sandbox, reason), f"end again {sandbox.id}")
        raise
    sandbox.abort_streams()
    await remove_remains(context, sandbox)
    sandbox.change(
        state=State.ENDED,
        ended_at=time.time(),
        end_reason=reason.reason,
        end_detail=reason.detail[:4096],
        last_words=reason.last_words[-65536:],
    )
    await context.save_end(sandbox.record)
    context.sandboxes.pop(sandbox.id, None)
    context.events.publish(Kind.ENDED, sandbox.record)
    event("sandbox.ended", sandbox=sandbox.id, reason=reason.reason, detail=reason.detail)


async def _try_again(context: Context, sandbox: Sandbox, reason: ExitReason) -> None:
    """A machine that would not end is not forgotten, also if nobody asks again."""
    await asyncio.sleep(AGAIN_S)
    async with sandbox.lock:
        if sandbox.id in context.sandboxes:
            begin_end(context, sandbox, reason)


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        problem("end.failed", task=task.get_name(), message=str(error))


async def release(sandbox: Sandbox) -> None:
    """Let go of what this process holds for it."""
    for task in list(sandbox.tasks):
        task.cancel()
    await asyncio.gather(*sandbox.tasks, return_exceptions=True)
    for forward in sandbox.forwards.values():
        forward.close()
    sandbox.forwards.clear()
    sandbox.abort_streams()


async def remove_remains(context: Context, sandbox: Sandbox) -> None:
    """Remove what lies on the host for a sandbox whose machine is gone."""
    if sandbox.client is not None:
        await _try("close", sandbox, sandbox.client.close())
    await detach(context, sandbox)
    with contextlib.suppress(OSError):
        context.socket(sandbox.id).unlink(missing_ok=True)
        context.socket(sandbox.id).with_suffix(".held").unlink(missing_ok=True)
    await _try("remove", sandbox, remove_tree(context.directory(sandbox.id)))


async def detach(context: Context, sandbox: Sandbox) -> None:
    """Remove a sandbox's network, if it has one. A failure is logged."""
    if sandbox.record.attachment is not None:
        attachment = attachment_from_json(sandbox.record.attachment)
        await _try("detach", sandbox, context.parts.network.detach(attachment))


async def _try(step: str, sandbox: Sandbox, work: Awaitable[None]) -> None:
    try:
        await work
    except (TupperError, OSError) as error:
        problem("end.step_failed", sandbox=sandbox.id, step=step, message=str(error))


def attachment_from_json(values: object) -> Attachment:
    """The attachment of a record."""
    f = Fields.of(values, "attachment")
    data = f.child("data")
    return Attachment(
        netns=f.text("netns"),
        holder_pid=f.whole("holder_pid") or 0,
        interface=f.text("interface"),
        address=f.text("address"),
        gateway=f.text("gateway"),
        dns=f.texts("dns"),
        mtu=f.whole("mtu") or 1500,
        data=data.values if data else {},
    )
