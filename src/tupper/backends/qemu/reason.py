"""Why a machine has ended, told from what its guest said last. Pure.

QEMU leaves no more behind than that it is gone, and asked it can be only while it lives. The
guest's kernel has the last word on its serial line. A guest can write there whatever it likes; it
deceives nobody but its own user.

Source: Linux 6.1, kernel/panic.c, kernel/exit.c, kernel/reboot.c, mm/oom_kill.c.
"""

from __future__ import annotations

import re

from tupper.core.lifecycle import EndReason, ExitReason

_PANIC = re.compile(r"Kernel panic - not syncing: ([^\n]{1,200})")
_INIT = "Attempted to kill init"
_NO_MEMORY = ("System is deadlocked on memory", "Out of memory")
_END = re.compile(r"tupper: end ([^\n]{1,200})")
_FAILED = re.compile(r"tupper: failed ([^\n]{1,400})")
_HALTED = re.compile(r"reboot: (System halted|Power down)")
_RESTART = "reboot: Restarting system"
_NEAR = 8192


def explain(console: str, words: str, *, memory_mib: int, was_oom_killed: bool) -> ExitReason:
    """The reason.

    Args:
        console: what the guest's kernel said last.
        words: all last words, for the record.
        memory_mib: the machine's limit.
        was_oom_killed: whether the host ended a process of the machine for its memory.
    """
    end = console[-_NEAR:].replace("\r", "")
    if was_oom_killed:
        reason, detail = EndReason.OUT_OF_MEMORY, ""
    elif panic := _PANIC.search(end):
        reason, detail = _after_panic(panic[1].strip())
    else:
        reason, detail = _without_panic(end)
    if reason is EndReason.OUT_OF_MEMORY:
        detail = f"the sandbox used all of its {memory_mib} MiB memory"
    return ExitReason(reason, detail, words)


def _after_panic(text: str) -> tuple[EndReason, str]:
    if any(sign in text for sign in _NO_MEMORY):
        return EndReason.OUT_OF_MEMORY, ""
    if _INIT in text:
        return EndReason.AGENT_DIED, "the agent was ended"
    return EndReason.KERNEL_PANIC, f"the guest's kernel panicked: {text}"


def _without_panic(end: str) -> tuple[EndReason, str]:
    if failed := _FAILED.search(end):
        return EndReason.MACHINE_DIED, f"the guest did not boot: {failed[1].strip()}"
    if ended := _END.search(end):
        return EndReason.AGENT_DIED, f"the agent ended: {ended[1].strip()}"
    if _HALTED.search(end):
        return EndReason.POWERED_OFF, "the guest powered itself off"
    if _RESTART in end:
        return EndReason.POWERED_OFF, "the guest restarted itself"
    return EndReason.MACHINE_DIED, "QEMU was ended from outside"
