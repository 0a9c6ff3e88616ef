"""The filter on what a machine's process may make, in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from tupper.core.restraint import CALLS, render_filter

PROGRAM = """
import ctypes, json, os, stat, sys
from tupper.core import restraint
os.chdir(sys.argv[1])
open("file", "w").close()
os.mkdir("dir")
if os.geteuid() == 0:
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
restraint.restrain("qemu", has_groups=sys.argv[2] == "True")
libc = ctypes.CDLL(None, use_errno=True)
here = os.open(".", os.O_RDONLY)
file = os.open("file", os.O_RDWR)

def tried(name, call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0

def raw(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

make = os.O_CREAT | os.O_WRONLY
calls = {
    "chmod suid": lambda: os.chmod("file", 0o4755),
    "fchmod suid": lambda: os.fchmod(file, 0o4700),
    "fchmodat suid": lambda: os.chmod("file", 0o6755, dir_fd=here),
    "chmod": lambda: os.chmod("file", 0o1755),
    "fchmod": lambda: os.fchmod(file, 0o640),
    "open suid": lambda: os.open("a", make, 0o4755),
    "openat suid": lambda: os.open("b", make, 0o4755, dir_fd=here),
    "tmpfile suid": lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
    "open": lambda: os.open("c", make, 0o755),
    "open, no mode": lambda: os.open("file", os.O_RDONLY, 0o4755),
    "open a directory": lambda: os.open("dir", os.O_RDONLY | os.O_DIRECTORY, 0o4755),
    "mkdir with bits": lambda: os.mkdir("d", 0o6755),
    "mkdirat with bits": lambda: os.mkdir("e", 0o6755, dir_fd=here),
    "chmod sgid": lambda: os.chmod("dir", 0o2755),
    "mkdir": lambda: os.mkdir("o", 0o755),
    "fifo": lambda: os.mkfifo("g"),
    "fifo at": lambda: os.mknod("h", stat.S_IFIFO | 0o600, dir_fd=here),
    "block device": lambda: os.mknod("i", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    "character device": lambda: os.mknod("j", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "node suid": lambda: os.mknod("k", stat.S_IFREG | 0o4600),
    "node": lambda: os.mknod("l", 0o600),
    "regular node": lambda: os.mknod("m", stat.S_IFREG | 0o600),
    "socket": lambda: os.mknod("n", stat.S_IFSOCK | 0o600),
    "openat2": lambda: raw(437, here, b"file", bytes(24), ctypes.c_size_t(24)),
    "io_uring_setup": lambda: raw(425, 1, bytes(128)),
    "fchmodat2 suid": lambda: raw(452, here, b"file", 0o4755, 0),
}
print(json.dumps({name: tried(name, call) for name, call in calls.items()}))
print(json.dumps([oct(os.stat(name).st_mode) for name in os.listdir(".")]))
"""
EPERM, ENOSYS = 1, 38


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_may_be_made_and_what_may_not(tmp_path, has_groups):
    if os.uname().machine not in CALLS:
        pytest.skip("no filter for this processor")
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path), str(has_groups)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60)
    said, modes = map(json.loads, done.stdout.splitlines())
    words = ("suid", "fifo", "device", *(["sgid"] if has_groups else []))
    refused = {name for name in said if any(word in name for word in words)}
    assert {name: said[name] for name in refused} == dict.fromkeys(refused, EPERM)
    hidden = {"openat2", "io_uring_setup"}
    assert {name: said[name] for name in hidden} == dict.fromkeys(hidden, ENOSYS)
    others = said.keys() - refused - hidden
    assert {name: said[name] for name in others} == dict.fromkeys(others, 0)
    assert not [mode for mode in modes if int(mode, 8) & (0o6000 if has_groups else 0o4000)]


@pytest.mark.parametrize("machine", list(CALLS))
def test_every_call_is_judged_and_the_last_step_allows(machine):
    calls = CALLS[machine]
    code = render_filter(calls)
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    compared = {int.from_bytes(s[4:], sys.byteorder) for s in steps if s[0] == 0x15}
    numbers = {number for number, _ in (*calls.modes, *calls.opens, *calls.nodes)}
    assert numbers | set(calls.hidden) | {calls.architecture} <= compared
    assert steps[-1][4:] == (0x7FFF0000).to_bytes(4, sys.byteorder)
    for at, step in enumerate(steps):  # no jump leads past the end
        if step[0] in (0x15, 0x35, 0x45):
            assert at + 1 + max(step[2], step[3]) < len(steps)
