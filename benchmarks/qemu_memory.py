"""QEMU: what one more restored sandbox takes that has done a command and is idle (PSS).

By process (QEMU, relay), and QEMU's by what it is: the guest's memory as far as QEMU has touched
it, code that was translated, the rest of its own. What the file takes that is the guest's memory
stands beside it: that is more, for a restored one is filled whole.
"""

import argparse
import re
import time
from pathlib import Path

from benchmarks.harness import pss_bytes
from benchmarks.raw_qemu import MEMORY_MIB, find_qemu, machine_pids
from tupper import Sandbox

_SETTLE_S = 6.0
_TRANSLATED = re.compile(r"^[0-9a-f]+-[0-9a-f]+ rwxp ")
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")


def measure(options: argparse.Namespace) -> dict[str, object]:
    qemu = find_qemu()
    if isinstance(qemu, str):
        return {"skipped": qemu}
    count = max(3, min(options.count, 6))
    made: list[Sandbox] = []

    def more(number: int) -> dict[str, float]:
        for _ in range(number):
            sbx = Sandbox.create(backend="qemu", memory=f"{MEMORY_MIB}m", user="root", timeout=1800)
            made.append(sbx)
            sbx.commands.run("true")
        time.sleep(_SETTLE_S)
        return _sum(_shares(sbx) for sbx in made)

    try:
        # What all share counts in the first ones, so the others show what one more costs.
        first = more(2)
        whole = more(count - 2)
    finally:
        for sbx in made:
            sbx.kill()
    each = {name: round((whole[name] - first[name]) / (count - 2) / 1e6, 1) for name in whole}
    return {"mechanism": qemu.mechanism, "count": count, "marginal_pss_mb": each}


def _sum(parts: object) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _shares(sbx: Sandbox) -> dict[str, float]:
    qemu, relay = sorted(machine_pids(sbx), key=lambda pid: -pss_bytes([pid]))[:2]
    shares = {"guest_memory": 0.0, "translated": 0.0, "own": 0.0}
    kind = "own"
    for line in Path(f"/proc/{qemu}/smaps").read_text().splitlines():
        if _MAPPING.match(line):
            is_memory = "tupper-ram" in line
            kind = (
                "guest_memory" if is_memory else "translated" if _TRANSLATED.match(line) else "own"
            )
        elif line.startswith("Pss:"):
            shares[kind] += int(line.split()[1]) * 1024
    shares["relay"] = pss_bytes([relay])
    return {**shares, "all": sum(shares.values()), "memory_file": _file(qemu)}


def _file(pid: int) -> float:
    """Bytes of the file in memory that is the guest's."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if "tupper-ram" in str(entry.readlink()):
            return entry.stat().st_blocks * 512
    return 0.0
