"""A program that runs some guest code by a KVM device: ``python -I -S kvmtrial.py DEVICE``.

It says ``begun`` before it touches the device, and then ``ok`` or what happened instead. It makes a
machine of one page, lets it count down from five million and halt. It imports nothing of tupper, so
that it begins soon.

Source: Linux, Documentation/virt/kvm/api.rst, sections 4.1 to 4.12; the numbers are those of
linux/kvm.h for x86-64.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys

BEGUN, OK = "begun", "ok"
_API = 12
_GET_API_VERSION, _CREATE_VM, _GET_VCPU_MMAP_SIZE = 0xAE00, 0xAE01, 0xAE04
_SET_USER_MEMORY_REGION, _CREATE_VCPU, _RUN = 0x4020AE46, 0xAE41, 0xAE80
_GET_SREGS, _SET_SREGS, _SET_REGS = 0x8138AE83, 0x4138AE84, 0x4090AE82
_SREGS_SIZE, _REGS_COUNT, _RIP, _RFLAGS = 312, 18, 16, 17
_EXIT_HLT = 5
# In 16-bit code: mov ecx, 5000000; dec ecx; jnz back; hlt.
_CODE = b"\x66\xb9" + struct.pack("<I", 5_000_000) + b"\x66\x49\x75\xfc\xf4"


def main() -> None:
    """Say ``ok``, or why not."""
    print(BEGUN, flush=True)  # noqa: T201 - this is the protocol
    try:
        said = run_some(sys.argv[1])
    except OSError as error:
        said = error.strerror or str(error)
    print(said or OK, flush=True)  # noqa: T201


def run_some(device: str) -> str:
    """Run the code; empty, or what happened instead. Blocks, perhaps for ever."""
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
    return "" if reason == _EXIT_HLT else f"it stopped with reason {reason}"


if __name__ == "__main__":
    main()
