"""Whether ``/dev/kvm`` runs guest code, found out by running some.

The device can exist and be of no use: no permission, a processor without the extension (then an
emulator of some host answers, badly), or one that accepts everything and hangs or crawls. So a
child (``kvmtrial.py``) runs some code, and has one second for it from the moment when it says that
it begins; how long a busy host takes to start a program says nothing. A child that cannot even be
ended is left to the kernel.

QEMU opens the device by its name, and as root we give it a user id without a name. It gets the
device's group then, where that is who may open it, and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import platform
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu.kvmtrial import BEGUN, OK
from tupper.core.liveness import start_ticks, wait_end
from tupper.core.process import minimal_env, spawn_detached

DEVICE = Path("/dev/kvm")
LIMIT_S = 1.0
BEGINS_S = 20.0
_TRIAL = str(Path(__file__).with_name("kvmtrial.py"))
# x86-64's names, then arm64's.
_SAME = (
    *("vendor_id", "cpu family", "model", "model name", "stepping"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
_FOR_GROUP, _FOR_OTHERS = stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why KVM cannot be used here.

    Args:
        reason: for people.
        remedy: what to do about it; empty if nothing is known.
    """

    reason: str
    remedy: str = ""


async def why_not(
    device: Path = DEVICE, cpuinfo: str | None = None, *, machine: str = platform.machine()
) -> Obstacle | None:
    """Why KVM cannot be used here; None if it can, as far as some instructions tell.

    Args:
        device: to open.
        cpuinfo: the text of ``/proc/cpuinfo``; read if None.
        machine: as ``uname -m``.
    """
    obstacle = _obstacle(device, cpuinfo, machine)
    if obstacle or machine != "x86_64":  # elsewhere a boot will tell
        return obstacle
    reason = await attempt([sys.executable, "-I", "-S", _TRIAL, str(device)], device)
    return Obstacle(reason) if reason else None


def _obstacle(device: Path, cpuinfo: str | None, machine: str) -> Obstacle | None:
    """What can be seen without running anything."""
    try:
        status = device.stat()
    except OSError:
        return Obstacle(f"there is no {device}")
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    if machine == "x86_64" and not has_extension(text):
        return Obstacle(f"{device} exists, but the processor has neither vmx nor svm")
    if not os.access(device, os.R_OK | os.W_OK):
        return Obstacle(f"cannot open {device}: permission denied", _remedy(status))
    if os.geteuid() == 0 and not is_open_to_qemu(status):
        reason = f"only root can open {device}, and QEMU does not run as root"
        return Obstacle(reason, f"chgrp kvm {device} && chmod 660 {device}")
    return None


def _remedy(status: os.stat_result) -> str:
    """What lets an ordinary user open a device."""
    if status.st_gid and status.st_mode & _FOR_GROUP == _FOR_GROUP:
        return f"sudo usermod -aG {_group_name(status.st_gid)} $USER, and log in again"
    return f"sudo chgrp kvm {DEVICE} && sudo chmod 660 {DEVICE}, and be a member of that group"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def is_open_to_qemu(status: os.stat_result) -> bool:
    """Whether a device can be opened by a user without a name, in the device's group or not."""
    return status.st_mode & _FOR_OTHERS == _FOR_OTHERS or bool(group_of(status))


def group_of(status: os.stat_result) -> int:
    """The group that a program needs to open a device; 0 for none, or for none that it may have."""
    if status.st_mode & _FOR_OTHERS == _FOR_OTHERS or status.st_mode & _FOR_GROUP != _FOR_GROUP:
        return 0
    return status.st_gid


def has_extension(cpuinfo: str) -> bool:
    """Whether the first processor of ``/proc/cpuinfo`` can run guests."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return not {"vmx", "svm"}.isdisjoint(value.split())
    return False


def processor(cpuinfo: str | None = None) -> str:
    """The host's processor, as far as a machine that was saved on it needs the same one.

    Args:
        cpuinfo: the text of ``/proc/cpuinfo``; read if None.

    Its features are left out: they change with the host's kernel, and what a guest sees of them
    does not.
    """
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    found: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        found[name.strip()] = value.strip()
    return " ".join(found[name] for name in _SAME if name in found)


async def attempt(argv: Sequence[str], device: Path) -> str:
    """Run guest code in a child; why it did not run, empty if it did."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with os.fdopen(theirs.detach(), "wb") as log:
            child = spawn_detached(argv, env=minimal_env(), log=log)
        try:
            return await _hear(ours, device)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            await _ends(child.pid)
            # One that hangs in the kernel is reaped by whoever starts the next child.
            child.poll()
            child.returncode = child.returncode if child.returncode is not None else -9


async def _hear(line: socket.socket, device: Path) -> str:
    """What is wrong, by what a child says; empty if nothing is."""
    heard, begun = "", False
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(BEGINS_S) as limit:
            while data := await loop.sock_recv(line, 4096):
                heard += data.decode(errors="replace")
                if not begun and f"{BEGUN}\n" in heard:
                    begun = True
                    limit.reschedule(loop.time() + LIMIT_S)
    except TimeoutError:
        if not begun:
            return f"the trial of {device} did not begin within {BEGINS_S:g} s"
        return f"{device} did not run some instructions within {LIMIT_S:g} s"
    words = heard.strip().splitlines() or ["nothing was said"]
    return "" if words[-1] == OK else f"{device} does not run guest code: {words[-1]}"


async def _ends(pid: int) -> None:
    ticks = start_ticks(pid)
    if ticks is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wait_end(pid, ticks), LIMIT_S)
