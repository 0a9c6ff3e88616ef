"""What ``tupper setup`` does for QEMU: it brings the guests' kernel, where there is a QEMU."""

from __future__ import annotations

from collections.abc import Callable

from tupper.backends.qemu.artifacts import find_artifacts
from tupper.backends.qemu.options import parse_options
from tupper.backends.qemu.probing import Prober
from tupper.backends.qemu.program import find
from tupper.backends.qemu.supply import obtain
from tupper.core.backend import BackendContext
from tupper.core.errors import BackendUnavailable

Progress = Callable[[str], None]


async def setup(context: BackendContext, *, progress: Progress) -> str:
    """Make the backend usable, or say that there is nothing to do.

    QEMU itself is never installed: it is large, and gVisor needs none of it.

    Raises:
        BackendUnavailable: it does not work all the same; the text is the probe's reason.
    """
    options = parse_options(context.settings, settings=True)
    if find(options.qemu) is None:
        return "QEMU is not installed, so there are no virtual machines"
    home = context.data_dir / "backends" / "qemu"
    kernel = await obtain(home, options, progress=progress)
    found = await Prober(home, options, find_artifacts).find()
    if not found.probe.usable:
        raise BackendUnavailable(found.probe.reason, hint=found.probe.remedy or None)
    return f"uses QEMU {found.probe.version}, {found.probe.mechanism}, kernel {kernel.release}"
