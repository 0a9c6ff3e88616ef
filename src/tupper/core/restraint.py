"""What a machine's process may not make on the host, whoever has taken it over. Linux only.

A guest's root is a root for the directories of the host that it may write to, so it could leave
programs there that run as root for any user of the host. A filter on the system calls of the
process that serves them (QEMU, gVisor's kernel and gofer) refuses modes with the set-user-ID bit,
and where it is asked to with the set-group-ID bit, in every call that takes a mode; but for
mkdir(2), where the kernel takes no notice of them. Nor are there new devices or pipes, at which a
program of the host would wait. Calls that would lead past the filter, because the kernel reads
their arguments from memory, are not there; those who are restrained have others for the same
purpose. The calls of gVisor's guests are not concerned: those never reach the host.

Source: chmod(2), open(2), mknod(2), openat2(2), io_uring(7); Linux, fs/namei.c, vfs_mkdir; numbers
of calls: asm/unistd_64.h of x86-64, asm-generic/unistd.h. seccomp(2): where two filters differ,
SIGSYS, by which systrap hears of a guest's call, goes before an error.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from tupper.core import seccomp
from tupper.core.errors import Unsupported
from tupper.core.seccomp import Step

_CREATES = os.O_CREAT | 0o20000000  # __O_TMPFILE, without the bit that it shares with O_DIRECTORY
_KINDS = (0, stat.S_IFREG, stat.S_IFSOCK)  # 0 stands for a regular file too
# Numbers from here on belong to the 32-bit calls of x86-64, which nobody needs.
_OTHER_CALLS = 0x40000000


@dataclass(frozen=True, slots=True)
class Calls:
    """The system calls of a processor that take a mode, each with the place of that argument.

    Args:
        architecture: of ``seccomp.PROCESSORS``.
        modes: of these the mode counts always.
        opens: of these it counts if the flags, one place before, say that a file is made.
        nodes: of these its kind counts too.
        hidden: are not there.
    """

    architecture: int
    modes: tuple[tuple[int, int], ...]
    opens: tuple[tuple[int, int], ...]
    nodes: tuple[tuple[int, int], ...]
    hidden: tuple[int, ...] = (425, 437)  # io_uring_setup, openat2


CALLS = {
    "x86_64": Calls(
        architecture=seccomp.PROCESSORS["x86_64"],
        # chmod, fchmod, fchmodat, fchmodat2, creat
        modes=((90, 1), (91, 1), (268, 2), (452, 2), (85, 1)),
        opens=((2, 2), (257, 3)),
        nodes=((133, 1), (259, 2)),
    ),
    "aarch64": Calls(
        architecture=seccomp.PROCESSORS["aarch64"],
        modes=((52, 1), (53, 2), (452, 2)),
        opens=((56, 3),),
        nodes=((33, 2),),
    ),
}


def restrain(backend: str, *, has_groups: bool) -> None:
    """Put the filter on the calling thread and all that it starts.

    Args:
        backend: who asks.
        has_groups: whether the process can make files of a group that it is in or may choose, and
            keep their set-group-ID bit.

    Raises:
        Unsupported: it is not known for this processor.
        OSError: the kernel refused.
    """
    machine = os.uname().machine
    if machine not in CALLS:
        raise Unsupported(backend, "mounts", f"there is no filter for the processor {machine}")
    bits = stat.S_ISUID | (stat.S_ISGID if has_groups else 0)
    seccomp.install(render_filter(CALLS[machine], bits), no_new_privileges=os.geteuid() != 0)


def render_filter(calls: Calls, bits: int = stat.S_ISUID) -> bytes:
    """The filter, which refuses modes with any of these bits."""
    steps = [
        (seccomp.LOAD, 0, 0, seccomp.ARCHITECTURE),
        (seccomp.JUMP_IF_EQUAL, 1, 0, calls.architecture),
        _refuse(errno.ENOSYS),
        (seccomp.LOAD, 0, 0, seccomp.NUMBER),
        (seccomp.JUMP_IF_GREATER_OR_EQUAL, 0, 1, _OTHER_CALLS),
        _refuse(errno.ENOSYS),
    ]
    for number in calls.hidden:
        steps += _for(number, [_refuse(errno.ENOSYS)])
    for number, at in calls.modes:
        steps += _for(number, _judge_mode(at, bits))
    for number, at in calls.opens:
        makes = [_load(at - 1), (seccomp.JUMP_IF_ANY_BIT, 1, 0, _CREATES), _ALLOW]
        steps += _for(number, [*makes, *_judge_mode(at, bits)])
    for number, at in calls.nodes:
        steps += _for(number, [*_judge_kind(at), *_judge_mode(at, bits)])
    return seccomp.render([*steps, _ALLOW])


_ALLOW = (seccomp.RETURN, 0, 0, seccomp.ALLOW)


def _refuse(number: int) -> Step:
    return (seccomp.RETURN, 0, 0, seccomp.ANSWER | number)


def _load(argument: int) -> Step:
    return (seccomp.LOAD, 0, 0, seccomp.FIRST_ARGUMENT + 8 * argument)


def _for(number: int, steps: list[Step]) -> list[Step]:
    return [(seccomp.JUMP_IF_EQUAL, 0, len(steps), number), *steps]


def _judge_mode(at: int, bits: int) -> list[Step]:
    bit = (seccomp.JUMP_IF_ANY_BIT, 0, 1, bits)
    return [_load(at), bit, _refuse(errno.EPERM), _ALLOW]


def _judge_kind(at: int) -> list[Step]:
    """Goes on behind these steps for a kind of file that may be made."""
    kinds = [
        (seccomp.JUMP_IF_EQUAL, len(_KINDS) - number, 0, kind) for number, kind in enumerate(_KINDS)
    ]
    return [_load(at), (seccomp.AND, 0, 0, 0o170000), *kinds, _refuse(errno.EPERM)]
