"""gVisor for an ordinary user: the engine's side.

A *holder* process keeps a user, mount and network namespace alive that one machine alone uses. With
a network it is the network's; without one it is ours. Everything is mounted inside, so it goes with
the holder, whatever else dies; the engine reaches the small file system with the agent's socket as
``/proc/HOLDER/root/…``.

Source: nsenter(1), unshare(1), setsid(1), proc(5) (``/proc/PID/root``).
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path

from tupper.backends.gvisor.bundle import Layout
from tupper.backends.gvisor.inside import Start, Try
from tupper.backends.gvisor.machine import ENTER, find_processes
from tupper.backends.gvisor.trial import Trial
from tupper.core.errors import InvalidArgument, MachineFailed
from tupper.core.liveness import start_ticks
from tupper.core.process import minimal_env, run_sync, same_code
from tupper.core.userns import AS_ROOT, OWN_MOUNTS
from tupper.protocol.connect import as_object

_NAMESPACES = (*AS_ROOT[:-1], "--net", *OWN_MOUNTS)
_TIMEOUT_S = 45.0
_HOLDER_TIMEOUT_S = 10.0
_POLL_S = 0.002
# Not ``-m``: the classes of the jobs must be those of the module, not of ``__main__``.
_MAIN = "from tupper.backends.gvisor.inside import main; main()"
# Reads from a pipe that it holds open itself, so it waits for ever and needs no other program.
_HOLD = 'exec 3<>"$1" && read -r _ <&3'


def start_machine(job: Start) -> None:
    """Start a machine in its holder's namespaces. Blocks; for a thread.

    Raises:
        MachineFailed: with what gVisor or the kernel said.
        InvalidArgument: a path that cannot be had in this image.
    """
    attachment = job.plan.attachment
    holder = attachment.holder_pid if attachment is not None else _hold(job.layout)
    ticks = start_ticks(holder)
    if ticks is None:
        raise MachineFailed("the process that holds the sandbox's network is gone")
    job.layout.holder.write_text(f"{holder} {ticks}")
    answer = _call([*ENTER, "-t", str(holder), "--"], job)
    error = as_object(answer.get("error"))
    if error is not None:
        kind = InvalidArgument if error.get("code") == InvalidArgument.code else MachineFailed
        raise kind(str(error.get("message")))


def try_machine(job: Try) -> Trial:
    """Run a trial in namespaces of its own. Blocks; for a thread.

    Raises:
        MachineFailed: it could not be run.
    """
    answer = _call([*_NAMESPACES], job)
    trial = as_object(answer.get("trial"))
    if trial is None:
        error = as_object(answer.get("error")) or {}
        raise MachineFailed(str(error.get("message") or "a trial said nothing"))
    return Trial.from_json(trial)


def _call(prefix: list[str], job: Start | Try) -> dict[str, object]:
    argv = [*prefix, sys.executable, "-P", "-c", _MAIN]
    env = minimal_env(**same_code())
    done = run_sync(argv, timeout_s=_TIMEOUT_S, stdin=pickle.dumps(job), env=env)
    try:
        return as_object(json.loads(done.stdout)) or {}
    except ValueError as error:
        raise MachineFailed("the process that starts machines said nothing") from error


def _hold(layout: Layout) -> int:
    """Start a holder that is found, and ended, like the machine's other processes."""
    fifo = layout.base / "hold"
    os.mkfifo(fifo, 0o600)
    mark = f"--root={layout.state}"
    argv = ["setsid", "--fork", *_NAMESPACES, "sh", "-c", _HOLD, "sh", str(fifo), mark]
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a pipe would be kept open by it
        run_sync(argv, timeout_s=_HOLDER_TIMEOUT_S, output=nothing)
    deadline = time.monotonic() + _HOLDER_TIMEOUT_S
    # The maps are complete when unshare has become the shell. Nothing tells, so look.
    while True:
        for pid in find_processes(layout.state):
            if _name_of(pid) == "sh":
                return pid
        if time.monotonic() > deadline:
            raise MachineFailed(f"no namespaces within {_HOLDER_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
