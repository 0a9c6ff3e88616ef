"""The states of a sandbox and why it ended.

A sandbox is ``starting`` from the moment its record is on disk, ``running`` once its agent has
answered, and ``ended`` when nothing of it is left but the record. ``paused`` is reached only on
backends that can save memory. ``unreachable`` is not a state: a machine that lives and does not
answer stays ``running`` and says so in its health.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a sandbox is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class OnTimeout(StrEnum):
    """What happens to a sandbox when its time is over."""

    KILL = "kill"
    PAUSE = "pause"


class EndReason(StrEnum):
    """Why a sandbox ended. Kept in its record."""

    KILLED = "killed"  # the user said so
    TIMEOUT = "timeout"  # the absolute deadline
    IDLE_TIMEOUT = "idle_timeout"  # no activity for as long as the user allowed
    OWNER_GONE = "owner_gone"  # the process it was bound to is gone
    START_FAILED = "start_failed"
    OUT_OF_MEMORY = "out_of_memory"  # the host's limit ended the machine
    OUT_OF_DISK = "out_of_disk"  # over its disk's size, where the disk itself cannot refuse
    AGENT_DIED = "agent_died"  # PID 1 inside ended by itself
    KERNEL_PANIC = "kernel_panic"  # the guest's own kernel gave up
    POWERED_OFF = "powered_off"  # the guest switched itself off, or started itself again
    MACHINE_DIED = "machine_died"  # the kernel or its monitor was ended from outside
    HOST_REBOOTED = "host_rebooted"
    LEFT_BEHIND = "left_behind"  # this data directory is a copy; the machine is not


@dataclass(frozen=True, slots=True)
class ExitReason:
    """How a machine ended, as its backend saw it.

    Args:
        reason: the class of end.
        detail: one line for the user; never a host path.
        last_words: at most 64 KiB of the machine's last output.
    """

    reason: EndReason
    detail: str = ""
    last_words: str = ""
