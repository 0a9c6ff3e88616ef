"""From nothing to the end of a first command, and to the end of the machine for the reference.

Ours has a network and a disk with a quota; the reference has neither.
"""

import argparse

from benchmarks.harness import compare, interleave
from benchmarks.raw import LOGIN, raw_runsc
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    made: list[Sandbox] = []
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}

    def ours() -> None:
        made.append(Sandbox.create(user="root", **extra))
        made[-1].commands.run("true")

    with raw_runsc(options.platform) as raw:

        def reference() -> None:
            # The last one is ended here, outside of the time that counts for ours.
            while made:
                made.pop().kill()
            raw.run(*LOGIN, "true")

        try:
            times = interleave({"create_and_run": ours, "runsc_run": reference}, options.repeat)
        finally:
            for sandbox in made:
                sandbox.kill()
    return compare(times, "create_and_run", "runsc_run")
