"""Making sure that there is a kernel: what ``tupper setup`` does for this backend."""

from __future__ import annotations

from pathlib import Path

from tupper.backends.qemu import kernel
from tupper.backends.qemu.minimal import build_minimal
from tupper.backends.qemu.stock import fetch_stock
from tupper.core.errors import NotFound


async def obtain(home: Path, options: kernel.Choice, *, progress: kernel.Progress) -> kernel.Kernel:
    """The kernel of the options; fetched or built if it is not there yet.

    Without a choice it is the distribution's own, which is there within seconds, unless a minimal
    one has been built.

    Errors:
        InvalidArgument, ProgramFailed, ProgramNotFound, BackendUnavailable: as those of
        :func:`kernel.find`, :func:`fetch_stock` and :func:`build_minimal`.
    """
    if options.kernel == kernel.MINIMAL:  # an update of the source makes another one
        return await build_minimal(home, progress=progress)
    try:
        return await kernel.find(home, options)
    except NotFound:
        return await fetch_stock(home, progress=progress)
