"""Filters on system calls. Linux only.

A filter is a program of small steps, rendered by those who need one; it holds for the calling
thread and all that it starts, and can never be taken off again.

Source: seccomp(2); bpf(4); linux/bpf_common.h, linux/seccomp.h, linux/audit.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_GREATER_OR_EQUAL, JUMP_IF_ANY_BIT = 0x20, 0x54, 0x15, 0x35, 0x45
RETURN = 0x06
# Offsets in struct seccomp_data; each argument takes eight bytes, the lower four come first.
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, ANSWER = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2

# AUDIT_ARCH of linux/audit.h, by what ``uname -m`` says.
PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Code, how far to jump if true and if false, constant.
Step = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def render(steps: Iterable[Step]) -> bytes:
    """A filter as the kernel takes it: ``struct sock_filter`` after ``struct sock_filter``."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def install(code: bytes, *, no_new_privileges: bool = False) -> None:
    """Put a filter on the calling thread and all that it starts.

    Args:
        code: from :func:`render`.
        no_new_privileges: give up privileges of set-user-ID programs first, without which only root
            may install a filter.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    one = ctypes.c_ulong(1)
    if no_new_privileges and libc.prctl(_PR_SET_NO_NEW_PRIVS, one, 0, 0, 0):
        raise _error()
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(kept))
    mode = ctypes.c_ulong(_MODE_FILTER)
    if libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(program), 0, 0):
        raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
