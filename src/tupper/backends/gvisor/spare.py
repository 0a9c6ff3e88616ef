"""Whom the host's kernel takes first when a machine's memory is full.

A machine's processes start with a raised score, which whatever they fork inherits: so what runs
inside is taken before what runs it. Those that the machine cannot do without get the usual score
back.

Source: proc(5), ``/proc/pid/oom_score_adj``: it counts for all processes that share an address
space, and only root may lower it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

_USUAL = "0"


def spare(pid: int) -> None:
    """Give one process the usual score. A process that is gone, or not ours, is not an error."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(_USUAL)


def spare_largest(pids: Iterable[int], *, but: set[int]) -> None:
    """Spare the process that has most memory, of those that are not in ``but``."""
    sizes = {pid: _resident_pages(pid) for pid in pids if pid not in but}
    if sizes:
        spare(max(sizes, key=sizes.__getitem__))


def _resident_pages(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0
