"""The filter that spares gVisor a wait, in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from tupper.backends.gvisor.barrier import render_filter

PROGRAM = """
import ctypes, json, os
from tupper.backends.gvisor import barrier
number = barrier._NUMBERS[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
def membarrier(command):
    ctypes.set_errno(0)
    return libc.syscall(number, command, 0, 0), ctypes.get_errno()
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: anybody may filter
before = membarrier(0)
filtered = barrier.skip_registration()
print(json.dumps([before, filtered, *map(membarrier, (0, 16, 8))]))
"""


def test_only_the_registration_is_answered_and_what_needs_it_is_refused():
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("no filter for this processor")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=60
    )
    before, filtered, query, register, barrier = json.loads(done.stdout)
    if before[0] <= 0:
        pytest.skip("this kernel has no membarrier")
    assert filtered
    assert query == before
    assert register == [0, 0]
    assert barrier == [-1, 1]  # EPERM: it is not registered


def test_the_filter_of_another_processor_lets_everything_through():
    code = render_filter(0xC00000B7, 283)
    assert len(code) == 8 * 8
    jump_unless_it_is = code[8:16]
    assert jump_unless_it_is[3] == 5  # from the second step to the last, which allows
    assert code[-4:] == (0x7FFF0000).to_bytes(4, sys.byteorder)
