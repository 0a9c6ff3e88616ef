"""QEMU: a fork of a running sandbox to a child that has done a command, against raw ``-incoming``.

The reference loads the same state, memory included, into a QEMU by hand, until the agent in it
answers; saving it is not counted there, and is here. Then ten forks at once: each has to have
random numbers and a name of its own.
"""

import argparse
import contextlib
import os

from benchmarks.harness import compare, taking_turns, timed
from benchmarks.raw_qemu import MEMORY_MIB, find_qemu, loaded
from tupper import Sandbox

_AT_ONCE = 10
_WHO = "hostname; cat /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx1"


def measure(options: argparse.Namespace) -> dict[str, object]:
    qemu = find_qemu()
    if isinstance(qemu, str):
        return {"skipped": qemu}
    if os.geteuid() != 0:
        return {"skipped": "the reference needs root for a network device"}
    times: dict[str, list[float]] = {"fork": [], "incoming": []}
    with (
        Sandbox.create(backend="qemu", memory=f"{MEMORY_MIB}m", user="root", timeout=1800) as sbx,
        contextlib.ExitStack() as children,
    ):
        sbx.commands.run("true")

        def fork() -> None:
            times["fork"].append(timed(lambda: _fork(sbx, 1, children)[0].commands.run("true")))
            children.close()

        with loaded(sbx) as raw:

            def incoming() -> None:
                raw.load()
                times["incoming"].append(raw.took_s)

            taking_turns([fork, incoming], max(3, options.repeat // 2) + 1)
        counted = {name: values[1:] for name, values in times.items()}
        at_once: list[Sandbox] = []
        ten_s = timed(lambda: at_once.extend(_fork(sbx, _AT_ONCE, children)))
        said = [child.commands.run(_WHO).stdout.split("\n", 2) for child in at_once]
        return {
            "mechanism": qemu.mechanism,
            **compare(counted, "fork", "incoming"),
            "ten_at_once_s": round(ten_s, 2),
            "ten_at_once_different": {
                name: len(set(column))
                for name, column in zip(
                    ("names", "uuids", "random"), zip(*said, strict=True), strict=True
                )
            },
        }


def _fork(sbx: Sandbox, count: int, ends: contextlib.ExitStack) -> list[Sandbox]:
    made: list[Sandbox] = []
    for child in sbx.fork(count=count):
        if isinstance(child, Exception):
            raise child
        ends.callback(child.kill)
        made.append(child)
    return made
