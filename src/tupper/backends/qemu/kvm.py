"""Whether ``/dev/kvm`` runs guest code, found out by running some.

The device can exist and be of no use: no permission, a processor without the extension (then an
emulator of some host answers, badly), or one that accepts everything and hangs or crawls. So a
child makes a machine of one page, lets it count down from five million and halt, and gets one
second for all of it. A child that cannot even be ended is left to the kernel.

Source: Linux, Documentation/virt/kvm/api.rst, sections 4.1 to 4.12; the numbers are those of
linux/kvm.h for x86-64.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import signal
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tupper.core.liveness import start_ticks, wait_end
from tupper.core.process import minimal_env, spawn_detached

DEVICE = Path("/dev/kvm")
LIMIT_S = 1.0
_API = 12
_GET_API_VERSION, _CREATE_VM, _GET_VCPU_MMAP_SIZE = 0xAE00, 0xAE01, 0xAE04
_SET_USER_MEMORY_REGION, _CREATE_VCPU, _RUN = 0x4020AE46, 0xAE41, 0xAE80
_GET_SREGS, _SET_SREGS, _SET_REGS = 0x8138AE83, 0x4138AE84, 0x4090AE82
_SREGS_SIZE, _REGS_COUNT, _RIP, _RFLAGS = 312, 18, 16, 17
_EXIT_HLT = 5
# In 16-bit code: mov ecx, 5000000; dec ecx; jnz back; hlt.
_CODE = b"\x66\xb9" + struct.pack("<I", 5_000_000) + b"\x66\x49\x75\xfc\xf4"
_MAIN = "from tupper.backends.qemu.kvm import main; main()"
_PACKAGE = str(Path(__file__).resolve().parents[3])
_OK = "ok"


async def why_not(
    device: Path = DEVICE, cpuinfo: str | None = None, *, machine: str = platform.machine()
) -> str:
    """Why KVM cannot be used here; empty if it can, as far as some instructions tell.

    Args:
        device: to open.
        cpuinfo: the text of ``/proc/cpuinfo``; read if None.
        machine: as ``uname -m``.
    """
    reason = _obstacle(device, cpuinfo, machine)
    if reason or machine != "x86_64":  # elsewhere a boot will tell
        return reason
    return await attempt([sys.executable, "-P", "-c", _MAIN, str(device)], device)


def _obstacle(device: Path, cpuinfo: str | None, machine: str) -> str:
    """What can be seen without running anything."""
    if not device.exists():
        return f"there is no {device}"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"cannot open {device}: permission denied"
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    if machine == "x86_64" and not has_extension(text):
        return f"{device} exists, but the processor has neither vmx nor svm"
    return ""


def has_extension(cpuinfo: str) -> bool:
    """Whether the first processor of ``/proc/cpuinfo`` can run guests."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return not {"vmx", "svm"}.isdisjoint(value.split())
    return False


async def attempt(argv: Sequence[str], device: Path) -> str:
    """Run guest code in a child; why it did not run, empty if it did."""
    env = minimal_env(PYTHONPATH=_PACKAGE, PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryFile() as said:
        child = spawn_detached(argv, env=env, log=said)
        try:
            ended = await _ends(child.pid)
            if not ended:
                os.kill(child.pid, signal.SIGKILL)
                await _ends(child.pid)
        finally:
            # One that hangs in the kernel is reaped by whoever starts the next child.
            child.poll()
            child.returncode = child.returncode if child.returncode is not None else -9
        if not ended:
            return f"{device} did not run some instructions within {LIMIT_S:g} s"
        said.seek(0)
        words = said.read(4096).decode(errors="replace").strip().splitlines()
    last = words[-1] if words else "nothing was said"
    return "" if last == _OK else f"{device} does not run guest code: {last}"


async def _ends(pid: int) -> bool:
    ticks = start_ticks(pid)
    if ticks is None:
        return True
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wait_end(pid, ticks), LIMIT_S)
        return True
    return False


def main() -> None:
    """In the child: say ``ok``, or why not."""
    try:
        reason = run_some(sys.argv[1])
    except OSError as error:
        reason = error.strerror or str(error)
    print(_OK if reason == 0 else reason, flush=True)  # noqa: T201 - this is the protocol


def run_some(device: str) -> str | int:
    """Run the code; 0, or what happened instead. Blocks, perhaps for ever."""
    kvm = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    if (version := fcntl.ioctl(kvm, _GET_API_VERSION, 0)) != _API:
        return f"it has version {version}, not {_API}"
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[: len(_CODE)] = _CODE
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    region = struct.pack("<IIQQQ", 0, 0, mmap.PAGESIZE, mmap.PAGESIZE, address)
    fcntl.ioctl(machine, _SET_USER_MEMORY_REGION, region)
    cpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    shared = mmap.mmap(cpu, fcntl.ioctl(kvm, _GET_VCPU_MMAP_SIZE, 0))
    special = bytearray(_SREGS_SIZE)
    fcntl.ioctl(cpu, _GET_SREGS, special)
    special[:8] = bytes(8)  # the base of the code segment
    special[12:14] = bytes(2)  # and its selector
    fcntl.ioctl(cpu, _SET_SREGS, special)
    registers = [0] * _REGS_COUNT
    registers[_RIP], registers[_RFLAGS] = mmap.PAGESIZE, 2
    fcntl.ioctl(cpu, _SET_REGS, struct.pack(f"<{_REGS_COUNT}Q", *registers))
    fcntl.ioctl(cpu, _RUN, 0)
    reason = int(struct.unpack_from("<I", shared, 8)[0])
    return 0 if reason == _EXIT_HLT else f"it stopped with reason {reason}"
