"""QEMU: from nothing to a first command, booted and restored, against a raw boot of the kernel.

Cold is the first sandbox of its kind: it boots, and is saved for the next ones, which start from
there. The raw boot ends when an ``/init`` says who it is; it has no disks, no network, no agent.
"""

import argparse

from benchmarks.harness import compare, spread, taking_turns, timed
from benchmarks.raw_qemu import MEMORY_MIB, find_qemu, forget_warm
from tupper import Sandbox


def measure(options: argparse.Namespace) -> dict[str, object]:
    qemu = find_qemu()
    if isinstance(qemu, str):
        return {"skipped": qemu}
    extra = {"backend": "qemu", "memory": f"{MEMORY_MIB}m", "user": "root"}
    names = ("raw_boot", "cold_create", "cold", "restored_create", "restored")
    times: dict[str, list[float]] = {name: [] for name in names}

    def ours(kind: str) -> None:
        made: list[Sandbox] = []
        create_s = timed(lambda: made.append(Sandbox.create(**extra)))
        run_s = timed(lambda: made[0].commands.run("true"))
        made[0].kill()
        times[f"{kind}_create"].append(create_s)
        times[kind].append(create_s + run_s)

    def booted() -> None:
        forget_warm()
        ours("cold")
        # What is there to start from is read and checked once, by the first that starts there.
        Sandbox.create(**extra).kill()

    def raw() -> None:
        times["raw_boot"].append(timed(qemu.boot))

    # A restored one always follows a cold one, which has made what it starts from.
    repeat = max(3, options.repeat // 2)
    taking_turns([raw, lambda: (booted(), ours("restored"))], repeat + 1)
    times = {name: values[1:] for name, values in times.items()}
    return {
        "mechanism": qemu.mechanism,
        "kernel": qemu.artifacts.source,
        "cold_to_raw_boot": compare(times, "cold_create", "raw_boot")["ratio"],
        "cold_to_raw_boot_best": compare(times, "cold_create", "raw_boot")["ratio_of_the_best"],
        "restored_to_cold": compare(times, "restored", "cold")["ratio"],
        "restored_to_cold_best": compare(times, "restored", "cold")["ratio_of_the_best"],
        **{f"{name}_ms": spread(values) for name, values in times.items()},
    }
