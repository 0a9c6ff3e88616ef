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

import ctypes
import os
import struct

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_REGISTER_PRIVATE_EXPEDITED = 16
# machine → (AUDIT_ARCH, number of membarrier)
_NUMBERS = {"x86_64": (0xC000003E, 324), "aarch64": (0xC00000B7, 283)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ANSWER_0, _ALLOW = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def skip_registration() -> bool:
    """Answer 0 to the registrations of the calling thread and of all that it starts.

    Returns:
        Whether that is so. Where it is not (another processor, no privilege), nothing is lost but
        time.
    """
    numbers = _NUMBERS.get(os.uname().machine)
    if numbers is None:
        return False
    code = render_filter(*numbers)
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    mode = ctypes.c_ulong(_MODE_FILTER)
    refused: int = libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(program), 0, 0)
    return refused == 0


def render_filter(architecture: int, number: int) -> bytes:
    """The filter: eight times ``struct sock_filter`` (code, jump if true, if false, constant)."""
    steps = (
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _NR),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, _REGISTER_PRIVATE_EXPEDITED),
        (_RETURN, 0, 0, _ANSWER_0),
        (_RETURN, 0, 0, _ALLOW),
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
