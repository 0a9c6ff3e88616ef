"""From nothing to the end of a first command, and the whole life, against ``runsc run``.

Ours has a network and a disk with a quota; the reference has neither. The first command of both is
a login shell's. The reference tells by its output when that command is done, so its own teardown
does not count there; the whole life of both does count it.
"""

import argparse

from benchmarks.harness import compare, taking_turns, timed
from benchmarks.raw import raw_runsc
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    times: dict[str, list[float]] = {
        name: [] for name in ("create", "create_and_run", "runsc_run", "life", "runsc_life")
    }

    def ours() -> None:
        made: list[Sandbox] = []
        create_s = timed(lambda: made.append(Sandbox.create(user="root", **extra)))
        run_s = timed(lambda: made[0].commands.run("true"))
        kill_s = timed(made[0].kill)
        times["create"].append(create_s)
        times["create_and_run"].append(create_s + run_s)
        times["life"].append(create_s + run_s + kill_s)

    with raw_runsc(options.platform) as raw:

        def reference() -> None:
            command_s, life_s = raw.run("true")
            times["runsc_run"].append(command_s)
            times["runsc_life"].append(life_s)

        taking_turns([ours, reference], options.repeat + 1)
    counted = {name: values[1:] for name, values in times.items()}
    result = compare(counted, "create_and_run", "runsc_run")
    result["ratio_of_whole_lives"] = compare(counted, "life", "runsc_life")["ratio"]
    return result
