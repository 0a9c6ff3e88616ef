"""Making sure that there is a kernel: what ``tupper setup`` does for this backend."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tupper.backends.qemu import kernel
from tupper.backends.qemu.minimal import build_minimal
from tupper.backends.qemu.stock import fetch_stock
from tupper.core.errors import NotFound
from tupper.core.paths import make_private

_WORK = ("fetch-*", "build-*", "kernels/new-*")


async def obtain(home: Path, options: kernel.Choice, *, progress: kernel.Progress) -> kernel.Kernel:
    """The kernel of the options; fetched or built if it is not there yet.

    Without a choice it is the distribution's own, which is there within seconds, unless a minimal
    one has been built.

    Errors:
        InvalidArgument, ProgramFailed, ProgramNotFound, BackendUnavailable: as those of
        :func:`kernel.find`, :func:`fetch_stock` and :func:`build_minimal`.
    """
    async with _alone(home):
        if options.kernel == kernel.MINIMAL:  # an update of the source makes another one
            return await build_minimal(home, progress=progress)
        try:
            return await kernel.find(home, options)
        except NotFound:
            return await fetch_stock(home, progress=progress)


@asynccontextmanager
async def _alone(home: Path) -> AsyncGenerator[None]:
    """One at a time; what others have left half done is removed."""
    make_private(home)
    lock = os.open(home / "supply.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        await asyncio.to_thread(_clear, home)
        yield
    finally:
        os.close(lock)


def _clear(home: Path) -> None:
    for pattern in _WORK:
        for path in home.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
