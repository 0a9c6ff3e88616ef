"""After a crash in the middle of a pause, a resume or a snapshot: finish it, or undo it.

What counts is what is on disk. A machine that lives goes on, so a pause that was not yet on record
is undone. A machine that is gone is no loss if it had been saved: its sandbox is paused. A resume
that was not yet on record never happened.
"""

from __future__ import annotations

import asyncio
import time

from tupper.core.errors import TupperError
from tupper.core.lifecycle import State
from tupper.core.liveness import is_alive
from tupper.core.log import event, problem
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.record import parse_saved
from tupper.engine.sandbox import Sandbox
from tupper.engine.saving import FACTS, SAVED, SAVING, let_go, take_down, undo_pause
from tupper.engine.watch import Watch


def is_alive_here(context: Context, sandbox: Sandbox) -> bool:
    """Whether the machine of a sandbox lives, since this start of the host."""
    machine = sandbox.record.machine
    if machine is None or sandbox.record.boot_id != context.boot_id:
        return False
    return is_alive(machine.pid, machine.start_ticks)


async def mend_paused(context: Context, watch: Watch, sandbox: Sandbox) -> bool:
    """Bring a sandbox in order that is paused, or is so now. Its machine is set, if it had one.

    Returns:
        Whether it is paused.
    """
    record, directory = sandbox.record, context.directory(sandbox.id)
    if record.state is not State.PAUSED:
        saved = directory / SAVED
        if record.doing != "pause" or not saved.is_dir() or is_alive_here(context, sandbox):
            return False
        facts = parse_saved(await asyncio.to_thread((saved / FACTS).read_text))
        sandbox.change(state=State.PAUSED, doing="", saved=facts, paused_at=round(time.time(), 6))
        await context.store.save(sandbox.record)
        event("pause.finished", sandbox=sandbox.id)
    sandbox.change(doing="")
    await take_down(context, watch, sandbox)
    await remove_tree(directory / "machine")
    await remove_tree(directory / SAVING)
    return True


async def mend_running(context: Context, watch: Watch, sandbox: Sandbox) -> None:
    """Let a sandbox go on that was held or paused when an earlier process ended."""
    doing, directory = sandbox.record.doing, context.directory(sandbox.id)
    async with sandbox.lock:
        if not sandbox.is_running:
            return
        try:
            if doing == "pause":
                await undo_pause(context, watch, sandbox, is_held=False)
            elif doing:
                await let_go(context, watch, sandbox, is_held=False)
                sandbox.change(doing="")
                await context.store.save(sandbox.record)
            else:
                await remove_tree(directory / SAVED)
        except (TupperError, OSError) as error:
            problem("mend.failed", sandbox=sandbox.id, doing=doing, message=str(error))
            return
    if doing:
        event("sandbox.mended", sandbox=sandbox.id, doing=doing)
