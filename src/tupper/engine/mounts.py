"""Taking down whatever is mounted below a directory of ours.

Source: proc_pid_mountinfo(5), umount(8).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tupper.core.process import run
from tupper.engine.place import unescape

_TIMEOUT_S = 30.0


def mounts_below(directory: Path, mountinfo: str) -> list[Path]:
    """Mount points at or below a directory, the deepest and latest first."""
    found: list[Path] = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            point = Path(unescape(fields[4]))
            if point.is_relative_to(directory):
                found.append(point)
    found.reverse()  # of two mounts on one place the later one is on top
    return sorted(found, key=lambda path: -len(path.parts))


def _find_below(directory: Path) -> list[Path]:
    try:
        return mounts_below(directory.resolve(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return []


async def unmount_below(directory: Path) -> None:
    """Unmount everything at or below a directory. Idempotent."""
    for point in await asyncio.to_thread(_find_below, directory):
        await run(["umount", "-l", str(point)], timeout_s=_TIMEOUT_S, check=False)
