"""The child that works inside a user namespace.

A process with threads cannot enter a user namespace, and only inside one may an ordinary user
mount, or give files to the image's owners. So for ordinary users the engine starts this child
through nsenter(1) or unshare(1). It does what the engine's thread does for root, and ends.

**Shape**: a pickled :class:`Start` or :class:`Try` on standard input, which only our engine holds
the other end of; one JSON object on standard output: ``{}``, ``{"trial": {…}}`` or ``{"error":
{"code", "message"}}``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tupper.backends.gvisor.bundle import Layout
from tupper.backends.gvisor.launch import launch_inside
from tupper.backends.gvisor.options import Platform
from tupper.backends.gvisor.prepare import prepare
from tupper.backends.gvisor.trial import run_trial
from tupper.core.backend import MachinePlan
from tupper.core.errors import TupperError

# When the whole host runs out of memory, sandboxes go before the user's own programs.
_OOM_SCORE_ADJ = "500"


@dataclass(frozen=True, slots=True)
class Start:
    """Start a machine in the namespaces that the child is in.

    Args:
        plan: of the machine.
        layout: its files; its directories exist.
        runsc: the program.
        platform: to use.
        image: where the saved machine is that goes on; None for a fresh one.
    """

    plan: MachinePlan
    layout: Layout
    runsc: Path
    platform: Platform
    image: Path | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """Run one trial.

    Args:
        runsc: the program.
        platform: to try.
        place: a directory that does not exist.
    """

    runsc: Path
    platform: Platform
    place: Path


def start(job: Start) -> None:
    """Start the machine."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    use_cores(job.plan.cpus)
    launch_inside(prepare(job.plan, job.layout, job.runsc, job.platform, image=job.image))


def use_cores(cpus: float) -> None:
    """Stay on as many cores, rounded up: the one limit of CPU that needs no privilege."""
    have = sorted(os.sched_getaffinity(0))
    want = max(1, math.ceil(cpus))
    if want < len(have):
        os.sched_setaffinity(0, random.sample(have, want))


def main() -> None:
    """Do what standard input asks for."""
    job: object = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own engine
    answer: dict[str, object] = {}
    try:
        if isinstance(job, Start):
            start(job)
        elif isinstance(job, Try):
            answer["trial"] = asdict(run_trial(job.runsc, job.platform, job.place))
    except TupperError as error:
        answer["error"] = {"code": error.code, "message": error.message}
    except OSError as error:
        answer["error"] = {"code": "", "message": str(error)}
    print(json.dumps(answer), flush=True)  # noqa: T201 - this is the protocol
