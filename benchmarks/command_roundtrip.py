"""``commands.run("true")`` against ``runsc exec … /bin/bash -l -c true``, on two roots.

``base`` is the template as it is. ``stock`` is the same root with Debian's own profile and
dotfiles put back, which start programs at each login; they are put into both machines alike.
What transport and SDK cost is seen from a request that starts nothing inside, and from the time
on the processor that this process spends for each command, which no neighbour changes.
"""

import argparse
import statistics
import time

from benchmarks.harness import compare, interleave, spread, timed
from benchmarks.raw import LOGIN, Raw, raw_runsc
from tupper import Sandbox

_STOCK = (
    "cd /usr/share/base-files && cp profile /etc/profile && cp dot.profile /root/.profile && "
    "cp dot.bashrc /root/.bashrc && rm -f /root/.bash_profile /root/.bash_login /etc/profile.d/*"
)


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with Sandbox.create(user="root", **extra) as sbx, raw_runsc(options.platform) as raw:
        name = raw.start("/bin/sleep", "1000000")
        try:
            result: dict[str, object] = {"base": _roundtrips(sbx, raw, name, options.repeat * 3)}
            result |= _own_part(sbx)
            sbx.commands.run(_STOCK)
            raw.exec(name, "/bin/sh", "-c", _STOCK)
            result["stock"] = _roundtrips(sbx, raw, name, options.repeat * 2)
        finally:
            raw.delete(name)
    return result


def _roundtrips(sbx: Sandbox, raw: Raw, name: str, repeat: int) -> dict[str, object]:
    times = interleave(
        {
            "commands_run": lambda: sbx.commands.run("true"),
            "commands_run_argv": lambda: sbx.commands.run(["/bin/true"]),
            "runsc_exec": lambda: raw.exec(name, *LOGIN, "true"),
            "runsc_exec_argv": lambda: raw.exec(name, "/bin/true"),
        },
        repeat,
    )
    result = compare(times, "commands_run", "runsc_exec")
    medians = {key: statistics.median(values) for key, values in times.items()}
    ratio = medians["commands_run_argv"] / medians["runsc_exec_argv"]
    result["ratio_argv"] = round(ratio, 3)
    return result


def _own_part(sbx: Sandbox) -> dict[str, object]:
    count = 200
    empty = spread([timed(sbx.commands.list) for _ in range(count)])
    before = time.process_time()
    for _ in range(count):
        sbx.commands.run("true")
    used_ms = (time.process_time() - before) / count * 1000
    return {"empty_request_ms": empty, "sdk_processor_ms_per_command": round(used_ms, 3)}
