"""What a guest is told: its kernel's command line, and what the relay says to it.

Nothing of a sandbox stands on the command line, which everybody inside can read: a machine that is
saved while it waits for its settings can become any sandbox.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import cast

from tupper.backends.qemu.kernel import Kernel
from tupper.core.backend import Attachment, MachinePlan

_X86 = "microvm,x-option-roms=off,pit=on,pic=on,rtc=on,isa-serial=on,auto-kernel-cmdline=on"


def machine_arguments(kernel: Kernel, *, machine: str = platform.machine()) -> list[str]:
    """The kind of machine that a kernel runs on, for QEMU's command line.

    A kernel that does not take devices from its command line finds them by ACPI, whose tables it
    gets from qboot; that firmware is quicker than the one that QEMU would choose.
    """
    if machine == "aarch64":
        return ["-M", "virt,gic-version=max"]
    acpi = "on" if kernel.acpi else "off"
    return ["-M", f"{_X86},acpi={acpi}", "-bios", "qboot.rom"]


# Under emulation only. Translated code is kept by its address: with random ones each start of a
# program is translated anew, which takes two to three times as long. And an emulated processor has
# none of the faults that the kernel works around at each system call.
_EMULATED = ("norandmaps", "mitigations=off")


def command_line(
    *, emulated: bool, tsc_khz: int = 0, hz: int = 0, machine: str = platform.machine()
) -> str:
    """The parameters of every guest's kernel.

    Args:
        emulated: whether an emulator runs it.
        tsc_khz: the speed of the host's time stamp counter; 0 if it is not known. A kernel with
            ACPI has no other clock under emulation, and measures it wrongly, or hangs, on a
            busy host.
        hz: timer ticks of the kernel in a second; 0 if that is not known.
        machine: as ``uname -m``.

    Source: Linux, ``Documentation/admin-guide/kernel-parameters.txt``.
    """
    words = ["quiet", "panic=-1"]  # a panic is a reset, which ends QEMU
    words += _EMULATED if emulated else ()
    if machine == "aarch64":
        return " ".join(["console=ttyAMA0", *words])
    words = ["console=ttyS0", *words, "reboot=t", "no_timer_check"]
    if tsc_khz:
        # The kernel would check it against timer ticks, which a busy host delivers late.
        words += [f"tsc_early_khz={tsc_khz}", "tsc=reliable"]
        if hz:
            # Each further processor would measure for 130 ms what follows from the two.
            words.append(f"lpj={tsc_khz * 1000 // hz}")
    return " ".join(words)


def render_settings(plan: MachinePlan) -> bytes:
    """What a guest that boots is told: whose it is. Holds the token of its agent."""
    more = cast("Mapping[str, object]", plan.agent_config.get("files", {}))
    agent = {**plan.agent_config, "hostname": plan.hostname, "files": {**plan.etc_files, **more}}
    return json.dumps(
        {
            "agent": agent,
            "network": _network(plan.attachment),
            "mounts": [
                {"name": str(number), "path": mount.guest_path, "readOnly": mount.read_only}
                for number, mount in enumerate(plan.mounts)
            ],
        }
    ).encode()


def render_news(plan: MachinePlan) -> bytes:
    """What a guest that goes on from a saved one is told."""
    return json.dumps({"network": _network(plan.attachment), "cold": plan.cold}).encode()


def _network(attachment: Attachment | None) -> dict[str, object] | None:
    if attachment is None:
        return None
    return {
        "address": attachment.address,
        "gateway": attachment.gateway,
        "mtu": attachment.mtu,
    }
