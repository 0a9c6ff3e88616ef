"""Saving a machine's memory and devices, and loading them into another one.

QEMU calls it migration. A machine's memory is a file in memory that QEMU shares with whoever may
open it, so it is left out of the migration (``x-ignore-shared``): the state of the devices has some
ten kilobytes, and the memory is copied by us, without its holes.

The machine stands still while it is saved, and its disk is copied at the same moment.

Source: QEMU 7.2, docs/devel/migration.rst, qapi/migration.json; measured in docs/design/qemu.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import copying
from tupper.backends.qemu.control import Control, connected
from tupper.backends.qemu.layout import CONTROL_NAME, Layout
from tupper.core.errors import DeadlineExceeded, MachineFailed, OutOfDisk

RAM, STATE, DISK = "ram", "state", "disk"
_MIGRATION_S = 300.0
_SETTLES_S = 10.0
_POLL_S = 0.001
_NO_SPACE = "No space left on device"
# As good as no limit; QEMU's own default is 128 MiB a second.
_BANDWIDTH = 1 << 40


@dataclass(frozen=True, slots=True)
class Source:
    """A machine that is saved.

    Args:
        layout: its files.
        pid: of its QEMU.
        memory_mib: its RAM.
        disk: its disk image; None if that is not wanted.
    """

    layout: Layout
    pid: int
    memory_mib: int
    disk: Path | None


async def save(source: Source, into: Path) -> dict[str, str]:
    """Save a machine into an empty directory; it goes on as it was, also when this fails.

    Returns:
        File name → digest.

    Raises:
        OutOfDisk: the host's disk is full.
        MachineFailed, DeadlineExceeded: QEMU could not.
    """
    async with connected(source.layout.base, CONTROL_NAME) as control:
        status = await control.status()
        if status == "postmigrate":  # from where QEMU does not migrate again
            await control.ask("cont")
        await control.ask("stop")
        try:
            return await _save(control, source, into)
        except OSError as error:
            raise copying.failure(error, "the sandbox was not saved") from error
        finally:
            await _surely(_go_on(control, is_running=status == "running"))


async def _save(control: Control, source: Source, into: Path) -> dict[str, str]:
    if not await asyncio.to_thread(into.is_dir):
        raise MachineFailed("the place for the saved machine is gone")
    copies: dict[str, Callable[[], str]] = {}
    memory = _open_memory(source)
    try:
        await _migrate(control, into / STATE)
        copies[RAM] = lambda: copying.keep(memory, into / RAM)
        copies[STATE] = lambda: _digest(into / STATE)
        if (disk := source.disk) is not None:
            copies[DISK] = lambda: _keep_file(disk, into / DISK)
        return await _all(copies)
    finally:
        os.close(memory)


async def _all(copies: dict[str, Callable[[], str]]) -> dict[str, str]:
    """Each in a thread; none is still at work when this returns."""
    tasks = {name: asyncio.ensure_future(asyncio.to_thread(c)) for name, c in copies.items()}
    try:
        return {name: await asyncio.shield(task) for name, task in tasks.items()}
    finally:
        await _surely(asyncio.gather(*tasks.values(), return_exceptions=True))


async def _surely(work: Awaitable[object]) -> None:
    """Wait for work that must be done, also when we are cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def _open_memory(source: Source) -> int:
    """The file that QEMU keeps the guest's memory in."""
    for entry in Path(f"/proc/{source.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if f"memfd:{copying.MEMORY}" in str(entry.readlink()):
                number = os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
                if os.fstat(number).st_size == source.memory_mib << 20:
                    return number
                os.close(number)
    raise MachineFailed("the memory of the guest was not found")


def _digest(path: Path) -> str:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return copying.copy(source)
    finally:
        os.close(source)


def _keep_file(source: Path, target: Path) -> str:
    number = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return copying.keep(number, target)
    finally:
        os.close(number)


async def _migrate(control: Control, path: Path) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(path, flags, 0o600)
    try:
        await control.ask("getfd", {"fdname": "saved"}, descriptor=number)
    finally:
        os.close(number)
    await _set(control)
    await control.ask("migrate-set-parameters", {"max-bandwidth": _BANDWIDTH})
    await control.ask("migrate", {"uri": "fd:saved"})
    await _completed(control)
    # QEMU says so before it is in the state that it can be woken from.
    await _until(control, lambda status: status == "postmigrate")


async def _set(control: Control) -> None:
    capabilities = [
        {"capability": "x-ignore-shared", "state": True},
        {"capability": "events", "state": True},
    ]
    await control.ask("migrate-set-capabilities", {"capabilities": capabilities})


async def _completed(control: Control) -> None:
    try:
        async with asyncio.timeout(_MIGRATION_S):
            while True:
                status = (await control.hear("MIGRATION")).data.get("status")
                if status == "completed":
                    return
                if status in ("failed", "cancelled"):
                    raise await _failure(control)
    except TimeoutError as error:
        raise DeadlineExceeded(f"QEMU saved nothing within {_MIGRATION_S:g} s") from error


async def _failure(control: Control) -> MachineFailed | OutOfDisk:
    said = str(await control.ask("query-migrate"))
    if _NO_SPACE in said:
        return OutOfDisk("the host's disk is full: the sandbox was not saved")
    return MachineFailed(f"QEMU could not save the sandbox: {said[:300]}")


async def _until(control: Control, is_right: Callable[[str], bool]) -> None:
    try:
        async with asyncio.timeout(_SETTLES_S):
            while not is_right(await control.status()):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_POLL_S)
    except TimeoutError as error:
        raise DeadlineExceeded(f"QEMU did not settle within {_SETTLES_S:g} s") from error


async def _go_on(control: Control, *, is_running: bool) -> None:
    """Leave the machine as it was; a migration that is still under way is given up."""
    with contextlib.suppress(MachineFailed, DeadlineExceeded):
        await control.ask("migrate_cancel")
        busy = ("finish-migrate",)
        await _until(control, lambda status: status not in busy)
    if is_running:
        await control.ask("cont")


async def load(control: Control, state: int) -> None:
    """Load a saved state into a machine that has its memory already; it stands still then.

    Args:
        control: of the machine.
        state: descriptor of the file; read from its begin, wherever it stands.

    Raises:
        MachineFailed: QEMU could not, and has ended.
    """
    number = os.open(f"/proc/self/fd/{state}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        await control.ask("getfd", {"fdname": "saved"}, descriptor=number)
    finally:
        os.close(number)
    await _set(control)
    await control.ask("migrate-incoming", {"uri": "fd:saved"})
    await _completed(control)
    await _until(control, lambda status: status != "inmigrate")
