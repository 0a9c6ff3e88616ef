"""Many sandboxes at once, against as many parallel ``runsc run --detach``."""

import argparse
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness import compare, taking_turns, timed
from benchmarks.raw import raw_runsc
from tupper import Sandbox

_TURNS = 3


def measure(options: argparse.Namespace) -> dict[str, object]:
    count = options.count
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    times: dict[str, list[float]] = {"create_all": [], "runsc_all": [], "kill_all": []}
    with raw_runsc(options.platform) as raw, ThreadPoolExecutor(count) as pool:

        def ours() -> None:
            made: list[Sandbox] = []
            times["create_all"].append(
                timed(
                    lambda: made.extend(pool.map(lambda _: Sandbox.create(**extra), range(count)))
                )
            )
            times["kill_all"].append(timed(lambda: list(pool.map(lambda box: box.kill(), made))))

        def theirs() -> None:
            started: list[str] = []
            sleep = ("/bin/sleep", "1000000")
            times["runsc_all"].append(
                timed(lambda: started.extend(pool.map(lambda _: raw.start(*sleep), range(count))))
            )
            list(pool.map(raw.delete, started))

        taking_turns([ours, theirs], _TURNS + 1)
    counted = {name: values[1:] for name, values in times.items()}
    return {"count": count, **compare(counted, "create_all", "runsc_all")}
