"""``commands.run("true")`` against ``runsc exec … /bin/bash -l -c true``, and the agent alone."""

import argparse
import statistics

from benchmarks.harness import compare, interleave, spread, timed
from benchmarks.raw import LOGIN, raw_runsc
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with Sandbox.create(user="root", **extra) as sbx, raw_runsc(options.platform) as raw:
        name = raw.start("/bin/sleep", "1000000")
        try:
            times = interleave(
                {
                    "commands_run": lambda: sbx.commands.run("true"),
                    "commands_run_argv": lambda: sbx.commands.run(["/bin/true"]),
                    "runsc_exec": lambda: raw.exec(name, *LOGIN, "true"),
                    "runsc_exec_argv": lambda: raw.exec(name, "/bin/true"),
                },
                options.repeat * 3,
            )
        finally:
            raw.delete(name)
        result = compare(times, "commands_run", "runsc_exec")
        argv = statistics.median(times["commands_run_argv"]) / statistics.median(
            times["runsc_exec_argv"]
        )
        result["ratio_argv"] = round(argv, 3)
        # A request that starts nothing inside: what transport and SDK cost.
        result["empty_request_ms"] = spread([timed(sbx.commands.list) for _ in range(200)])
    return result
