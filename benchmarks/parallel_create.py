"""Many sandboxes at once, against as many parallel ``runsc run --detach``."""

import argparse
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness import compare, timed
from benchmarks.raw import raw_runsc
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    count = options.count
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    times: dict[str, list[float]] = {"create_all": [], "runsc_all": []}
    made: list[Sandbox] = []
    started: list[str] = []
    with raw_runsc(options.platform) as raw, ThreadPoolExecutor(count) as pool:

        def create_all() -> None:
            made.extend(pool.map(lambda _: Sandbox.create(**extra), range(count)))

        def start_all() -> None:
            started.extend(pool.map(lambda _: raw.start("/bin/sleep", "1000000"), range(count)))

        for turn in range(3):
            ours = timed(create_all)
            list(pool.map(Sandbox.kill, made))
            theirs = timed(start_all)
            list(pool.map(raw.delete, started))
            made.clear()
            started.clear()
            if turn:
                times["create_all"].append(ours)
                times["runsc_all"].append(theirs)
    return {"count": count, **compare(times, "create_all", "runsc_all")}
