"""What the guests boot: a kernel, our first file system, the kernel's parameters."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import clock, guest, initramfs
from tupper.backends.qemu import kernel as kernels
from tupper.backends.qemu.launch import Guest
from tupper.backends.qemu.options import Accel, Options
from tupper.core.errors import NotFound
from tupper.core.paths import make_private

_PROBE = "tupper.probe"
_AGENTS = Path(__file__).parents[2] / "guest" / "bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Artifacts:
    """A kernel that was found.

    Args:
        kernel: of the guests.
        initramfs: for the probe, with the agent of this installation.
        tsc_khz: how fast the host's time stamp counter runs, which an emulator hands on.
        source: where the kernel comes from, for people.
        key: another kernel, or another first file system, has another one.
    """

    kernel: kernels.Kernel
    initramfs: Path
    tsc_khz: int
    source: str
    key: str


async def find_artifacts(home: Path, options: Options) -> Artifacts:
    """The kernel of the settings, or the best there is.

    Raises:
        NotFound: there is none, or no agent.
    """
    found = await kernels.find(home, options)
    binary = _AGENTS / f"tupper-agent-linux-{_ARCHITECTURES.get(platform.machine(), '')}"
    if not binary.is_file():
        raise NotFound("the agent is missing from this installation")
    return await asyncio.to_thread(_build, home, found, binary)


def _build(home: Path, found: kernels.Kernel, binary: Path) -> Artifacts:
    make_private(home)
    first = initramfs.build(home, found, binary)
    tsc_khz = clock.tsc_khz(home, binary)
    return Artifacts(found, first, tsc_khz, found.source, f"{found.digest} {first.name}")


def guest_of(artifacts: Artifacts, accel: Accel, home: Path, agent_binary: Path) -> Guest:
    """What a machine with this agent boots. Blocks."""
    first = initramfs.build(home, artifacts.kernel, agent_binary)
    return _guest(artifacts, accel, first)


def probe_guest(artifacts: Artifacts, accel: Accel) -> Guest:
    """What only says who it is."""
    return _guest(artifacts, accel, artifacts.initramfs, _PROBE)


def _guest(artifacts: Artifacts, accel: Accel, first: Path, *words: str) -> Guest:
    emulated = accel is Accel.TCG
    tsc_khz = artifacts.tsc_khz if emulated else 0
    kernel = artifacts.kernel
    parameters = guest.command_line(emulated=emulated, tsc_khz=tsc_khz, hz=kernel.hz)
    return Guest(
        kernel=kernel.path,
        initramfs=first,
        parameters=" ".join([parameters, *words]),
        machine=tuple(guest.machine_arguments(kernel)),
    )
