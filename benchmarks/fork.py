"""``sandbox.fork()`` to a child that answers, against ``runsc checkpoint`` and ``runsc restore``.

The reference has no network, no disk, no agent, and syncs nothing; nor does a fork.
"""

import argparse
import contextlib

from benchmarks.harness import compare, interleave
from benchmarks.raw import raw_runsc
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with (
        Sandbox.create(**extra) as sbx,
        raw_runsc(options.platform) as raw,
        contextlib.ExitStack() as children,
    ):
        sbx.commands.run("sleep 100000", background=True)
        name = raw.start("/bin/sleep", "1000000")

        def fork() -> None:
            (child,) = sbx.fork()
            if isinstance(child, Exception):
                raise child
            children.callback(child.kill)
            child.commands.list()

        def by_hand() -> None:
            children.callback(raw.delete, raw.copy(name))

        try:
            times = interleave({"fork": fork, "checkpoint_restore": by_hand}, options.repeat)
        finally:
            raw.delete(name)
    return compare(times, "fork", "checkpoint_restore")
