"""What the guests boot: a kernel, our first file system, the kernel's parameters."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import guest, initramfs
from tupper.backends.qemu import kernel as kernels
from tupper.backends.qemu.launch import Guest
from tupper.backends.qemu.options import Options
from tupper.core.errors import NotFound

_PROBE = "tupper.probe"
_AGENTS = Path(__file__).parents[2] / "guest" / "bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Artifacts:
    """A kernel that was found.

    Args:
        kernel: of the guests.
        initramfs: for the probe, with the agent of this installation.
        source: where the kernel comes from, for people.
        key: another kernel, or another first file system, has another one.
    """

    kernel: kernels.Kernel
    initramfs: Path
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
    first = initramfs.build(home, found, binary)
    return Artifacts(found, first, found.source, f"{found.digest} {first.name}")


def guest_of(artifacts: Artifacts, home: Path, agent_binary: Path) -> Guest:
    """What a machine with this agent boots. Blocks."""
    return Guest(
        kernel=artifacts.kernel.path,
        initramfs=initramfs.build(home, artifacts.kernel, agent_binary),
        parameters=guest.command_line(artifacts.kernel),
        machine=tuple(guest.machine_arguments(artifacts.kernel)),
    )


def probe_guest(artifacts: Artifacts) -> Guest:
    """What only says who it is."""
    return Guest(
        kernel=artifacts.kernel.path,
        initramfs=artifacts.initramfs,
        parameters=f"{guest.command_line(artifacts.kernel)} {_PROBE}",
        machine=tuple(guest.machine_arguments(artifacts.kernel)),
    )
