"""Sparing runsc a wait that nothing needs.

Each of the seven or eight processes of a start registers for private expedited membarriers when it
begins, and the kernel lets it wait for a grace period (5 to 15 ms here, three or four of them one
after the other). gVisor makes such barriers on its KVM platform alone, and has since stopped to
register elsewhere. For the runsc that does it still, a filter on system calls answers in the
kernel's place: done. What is not registered the kernel refuses with EPERM, so a barrier that were
made all the same could not silently be missing. Global barriers, the guests', are as before.

Source: membarrier(2), seccomp(2); gVisor, pkg/sentry/hostmm/membarrier.go; Linux,
kernel/sched/membarrier.c (sync_runqueues_membarrier_state).
"""

from __future__ import annotations

import os

from tupper.core import seccomp

_REGISTER_PRIVATE_EXPEDITED = 16
# The number of membarrier.
_NUMBERS = {"x86_64": 324, "aarch64": 283}


def skip_registration() -> bool:
    """Answer 0 to the registrations of the calling thread and of all that it starts.

    Returns:
        Whether that is so. Where it is not (another processor, no privilege), nothing is lost but
        time.
    """
    machine = os.uname().machine
    if machine not in _NUMBERS:
        return False
    try:
        seccomp.install(render_filter(seccomp.PROCESSORS[machine], _NUMBERS[machine]))
    except OSError:
        return False
    return True


def render_filter(architecture: int, number: int) -> bytes:
    """The filter, in eight steps."""
    return seccomp.render(
        (
            (seccomp.LOAD, 0, 0, seccomp.ARCHITECTURE),
            (seccomp.JUMP_IF_EQUAL, 0, 5, architecture),
            (seccomp.LOAD, 0, 0, seccomp.NUMBER),
            (seccomp.JUMP_IF_EQUAL, 0, 3, number),
            (seccomp.LOAD, 0, 0, seccomp.FIRST_ARGUMENT),
            (seccomp.JUMP_IF_EQUAL, 0, 1, _REGISTER_PRIVATE_EXPEDITED),
            (seccomp.RETURN, 0, 0, seccomp.ANSWER),
            (seccomp.RETURN, 0, 0, seccomp.ALLOW),
        )
    )
