"""Saving a machine with gVisor's checkpoint.

The image is gVisor's own: memory, and all that the guest wrote to its disk, since gVisor keeps that
like memory. Beside it lies what a restore needs from us: the skeleton, whose files must still be
those that gVisor knew, and the configuration with its list of mounts.

``--leave-running`` always: so a save that fails, or whose caller is killed, loses nothing. What was
paused before stays paused (gVisor counts). Where a failed checkpoint ends the machine, as
in releases of 2022, nothing is ever saved: the trial finds out on a guest of its own.

Source: ``runsc help checkpoint`` of release 20240729; measured in docs/design/gvisor.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from pathlib import Path

from tupper.backends.gvisor.bundle import Layout
from tupper.backends.gvisor.prepare import CONFIG, SKELETON, copy_tree
from tupper.core.errors import MachineFailed, OutOfDisk, ProgramFailed
from tupper.core.process import run

# Of memory and disk: 4 GiB to a slow disk take their time.
_SAVE_S = 600.0
_NO_SPACE = "no space left on device"


async def save(prefix: list[str], runsc: str, layout: Layout, sandbox_id: str, into: Path) -> None:
    """Save a machine that runs or is paused into an empty directory.

    Args:
        prefix: a command line that enters the machine's namespaces; empty where that is not needed.
        runsc: the program that runs it.
        layout: its files.
        sandbox_id: its id.
        into: the directory.

    Raises:
        OutOfDisk: the host's disk is full.
        MachineFailed: gVisor refused.
    """
    argv = [
        *(*prefix, runsc, f"--root={layout.state}", "checkpoint", "--leave-running"),
        *("--compression=none", f"--image-path={into}", sandbox_id),
    ]
    try:
        await run(argv, timeout_s=_SAVE_S)
    except ProgramFailed as error:
        if _NO_SPACE in error.output:
            raise OutOfDisk("the host's disk is full, so the sandbox was not saved") from error
        raise MachineFailed(
            f"gvisor could not save the sandbox: {_reason(error.output)}"
        ) from error
    await asyncio.to_thread(_keep_ours, layout, into)


def _keep_ours(layout: Layout, into: Path) -> None:
    (into / SKELETON).mkdir(mode=0o700)
    copy_tree(layout.skeleton, into / SKELETON)
    shutil.copyfile(layout.bundle / CONFIG, into / CONFIG)
    (into / CONFIG).chmod(0o600)


def saved_hostname(image: Path) -> str:
    """What the guest of a saved machine calls itself."""
    return str(json.loads((image / CONFIG).read_text()).get("hostname", ""))


def _reason(output: str) -> str:
    """The cause, without the stack that gVisor prints after it and the host's paths before it."""
    for line in output.splitlines():
        if "checkpoint" in line or "error" in line:
            return line.rsplit('": ', 1)[-1][:300]
    return "it said nothing"


def leave_release(layout: Layout) -> None:
    """Put the file that a held agent looks for into the directory that the guest may write to.

    The guest may have put a link, a directory or a pipe there: nothing of it is followed or opened.
    """
    with contextlib.suppress(OSError):
        directory = os.open(layout.shared, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(layout.release.name, flags, 0o644, dir_fd=directory))
        finally:
            os.close(directory)
