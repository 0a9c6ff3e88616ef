"""What a sandbox uses, over time.

Nothing is measured until somebody asks. From then on a sample is taken every
:data:`PERIOD_S`, until nobody has asked for :data:`KEEP_ASKING_S`; a question always gets a fresh
one. The host's numbers count where the backend has them: the guest's own are only its word.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tupper.core.backend import Usage
from tupper.core.errors import TupperError
from tupper.core.sandbox import SandboxRecord

if TYPE_CHECKING:
    from tupper.engine.sandbox import Sandbox

PERIOD_S = 10.0
KEEP_ASKING_S = 120.0
_FRESH_S = 1.0
_ANSWER_S = 5.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Args:
        at: unix seconds.
        cpu_s: seconds of CPU since the start, as the host counts; -1 where it does not.
        cpu_count: cores the guest sees, rounded up.
        cpu_used_pct: of one core, since the sample before.
        memory_used, memory_total, memory_cache, disk_used, disk_total: bytes.
    """

    at: float
    cpu_s: float
    cpu_count: int
    cpu_used_pct: float
    memory_used: int
    memory_total: int
    memory_cache: int
    disk_used: int
    disk_total: int


async def collect(sandbox: Sandbox, start_s: float | None, end_s: float | None) -> list[Sample]:
    """The samples of a range, with a fresh one where the range includes now."""
    loop = asyncio.get_running_loop()
    sandbox.metrics_wanted_at = loop.time()
    now = time.time()
    stale = not sandbox.samples or now - sandbox.samples[-1].at >= _FRESH_S
    if stale and (end_s is None or end_s + 1 > now):
        await _take(sandbox)
    if sandbox.sampler is None or sandbox.sampler.done():
        sandbox.sampler = loop.create_task(_keep_taking(sandbox), name=f"metrics {sandbox.id}")
        sandbox.tasks.add(sandbox.sampler)
        sandbox.sampler.add_done_callback(sandbox.tasks.discard)
    # Callers speak in whole seconds: the second of ``end`` counts in full.
    low = -math.inf if start_s is None else start_s
    high = math.inf if end_s is None else end_s + 1
    return [sample for sample in sandbox.samples if low <= sample.at < high]


async def _keep_taking(sandbox: Sandbox) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() - sandbox.metrics_wanted_at < KEEP_ASKING_S:
        await asyncio.sleep(PERIOD_S)
        await _take(sandbox)


async def _take(sandbox: Sandbox) -> None:
    usage, guest = Usage(), dict[str, object]()
    if sandbox.machine is not None:
        usage = await sandbox.machine.usage()
    with contextlib.suppress(TupperError, OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            guest = dict(await sandbox.agent.metrics())
    before = sandbox.samples[-1] if sandbox.samples else None
    sandbox.samples.append(sample_of(sandbox.record, usage, guest, before, time.time()))


def sample_of(
    record: SandboxRecord,
    usage: Usage,
    guest: Mapping[str, object],
    before: Sample | None,
    at: float,
) -> Sample:
    """Put the host's and the guest's numbers together.

    Args:
        record: its limits are the totals.
        usage: the host's view; zeros where it has none.
        guest: the agent's answer; anything may stand in it.
        before: the sample before.
        at: unix seconds.
    """
    percent = _number(guest, "cpu_used_pct")
    if usage.cpu_s and before and before.cpu_s >= 0 and at > before.at:
        percent = max(0.0, 100 * (usage.cpu_s - before.cpu_s) / (at - before.at))
    return Sample(
        at=at,
        cpu_s=usage.cpu_s or -1.0,
        cpu_count=max(1, math.ceil(record.cpus)),
        cpu_used_pct=round(percent, 2),
        memory_used=usage.memory_bytes or int(_number(guest, "mem_used")),
        memory_total=record.memory_mib * _MIB,
        memory_cache=int(_number(guest, "mem_cache")),
        disk_used=usage.disk_bytes or int(_number(guest, "disk_used")),
        disk_total=record.disk_mib * _MIB,
    )


def _number(guest: Mapping[str, object], key: str) -> float:
    value = guest.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    number = float(value) if abs(value) < 2**63 else 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0
