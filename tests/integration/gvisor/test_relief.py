import asyncio
import sys
import uuid
from dataclasses import dataclass, field

import pytest

from tupper.backends.gvisor.relief import relieve
from tupper.core.cgroup import Cgroup, Limits, find_hierarchy

pytestmark = pytest.mark.root
LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Watched(Cgroup):
    """A group that remembers its limits."""

    seen: list[int] = field(default_factory=list)
    back: asyncio.Event = field(default_factory=asyncio.Event)

    def limit(self, limits):
        super(Watched, self).limit(limits)
        self.seen.append(limits.memory_bytes)
        if limits.memory_bytes == LIMIT and len(self.seen) > 1:
            self.back.set()


async def test_a_limit_that_is_met_is_lifted_for_a_moment_and_comes_back():
    hierarchy = find_hierarchy()
    if hierarchy is None or hierarchy.version != 1:
        pytest.skip("no memory groups of version 1 on this host")
    made = Cgroup.create(hierarchy, f"test-{uuid.uuid4().hex[:8]}", Limits(LIMIT))
    group = Watched(made.version, made.paths)
    watch = asyncio.create_task(relieve(group, LIMIT))
    try:
        await asyncio.sleep(0)  # it listens from here
        hog = await asyncio.create_subprocess_exec(
            *group.joining([sys.executable, "-c", "x = bytearray(160 << 20)"])
        )
        assert await asyncio.wait_for(hog.wait(), 60) == -9
        await asyncio.wait_for(group.back.wait(), 60)
        assert LIMIT < max(group.seen) <= LIMIT * 1.5
        assert group.memory_bytes() <= LIMIT
        assert not watch.done()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert await group.kill(timeout_s=10)
        assert not made.remove()


async def test_without_such_an_event_nothing_is_watched(tmp_path):
    await asyncio.wait_for(relieve(Cgroup(2, (tmp_path,)), LIMIT), 60)
