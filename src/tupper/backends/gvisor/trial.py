"""A trial: one real guest on one platform, and what it tells.

The guest runs the host's own ``ls`` and ``stat``, because the runsc of 2022 that some
distributions still ship starts well and then fails on every ``stat`` of a current one. It also
starts processes against the clock and then idles, so that the platforms can be compared by what
matters to people: how fast commands start, and what a sandbox costs that does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tupper.backends.gvisor.launch import hide_network_sysctls
from tupper.backends.gvisor.machine import find_processes
from tupper.backends.gvisor.options import Platform
from tupper.core import kernel
from tupper.core.errors import TupperError
from tupper.core.process import minimal_env, run_sync

# Generous, for a busy host; KVM hangs where it does not really work, so it gets less.
_TIMEOUT_S = 20.0
_KVM_TIMEOUT_S = 5.0
PROGRAMS = ("sh", "ls", "stat", "cat", "true", "sleep")
_STARTS = 25
_SAVE_S = 10.0
_IDLE_S = 0.4
_LIBRARY = re.compile(r"(/[^\s()]+)(?: \(0x[0-9a-f]+\))")
_SCRIPT = f"""
ls -l / >/dev/null && stat /bin/ls >/dev/null || {{ echo "broken"; exit 1; }}
cat /proc/version
cat /proc/uptime
i=0; while [ $i -lt {_STARTS} ]; do /bin/true; i=$((i+1)); done
cat /proc/uptime
echo ready
exec sleep 30
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial told.

    Args:
        platform: where it ran.
        works: whether the guest did all that it should.
        reason: why not.
        kernel: the guest's release, such as ``4.4.0``.
        start_ms: for one process, in milliseconds.
        idle_percent: of a core, while the guest slept.
        saves_not: why machines cannot be saved and restored here; empty if they can.
    """

    platform: Platform
    works: bool
    reason: str = ""
    kernel: str = ""
    start_ms: float = 0.0
    idle_percent: float = 0.0
    saves_not: str = ""

    @classmethod
    def from_json(cls, item: Mapping[str, object]) -> Trial:
        """The trial behind ``dataclasses.asdict``."""
        return cls(
            Platform(str(item["platform"])),
            works=item["works"] is True,
            reason=str(item["reason"]),
            kernel=str(item["kernel"]),
            start_ms=float(str(item["start_ms"])),
            idle_percent=float(str(item["idle_percent"])),
            saves_not=str(item["saves_not"]),
        )


Run = Callable[[Path, Platform, Path], Trial]


async def try_out(runsc: Path, platform: Platform, work_dir: Path, *, how: Run) -> Trial:
    """Run one guest. Leaves nothing.

    Args:
        runsc: the program.
        platform: to try.
        work_dir: a directory that exists; one below it is used and removed.
        how: :func:`run_trial`, or a way to call it with the privileges that it needs.
    """
    place = work_dir / f"trial-{os.getpid()}-{platform}"
    shutil.rmtree(place, ignore_errors=True)
    try:
        return await kernel.in_thread(lambda: how(runsc, platform, place), name="gvisor-trial")
    except (OSError, TupperError) as error:
        return Trial(platform, works=False, reason=str(error))
    finally:
        _kill(place)
        shutil.rmtree(place, ignore_errors=True)


def run_trial(runsc: Path, platform: Platform, place: Path) -> Trial:
    """Run one guest in namespaces of the calling thread's own. Leaves processes and files."""
    timeout_s = _KVM_TIMEOUT_S if platform is Platform.KVM else _TIMEOUT_S
    deadline = time.monotonic() + timeout_s
    root = place / "root"
    build_tree(root)
    (place / "state").mkdir()
    (place / "config.json").write_text(_config(root))
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    hide_network_sysctls()
    reader, writer = os.pipe()
    try:
        try:
            run_sync(
                _command(runsc, platform, place),
                timeout_s=timeout_s,
                env=minimal_env(),
                output=writer,
            )
        except TupperError as error:
            os.set_blocking(reader, False)
            return Trial(platform, works=False, reason=_first_line(_drain(reader)) or error.message)
        os.close(writer)
        writer = -1
        said = _read_until_ready(reader, deadline)
        trial = _judge(platform, said, place / "state")
        return replace(trial, saves_not=_save(runsc, platform, place)) if trial.works else trial
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _save(runsc: Path, platform: Platform, place: Path) -> str:
    """Why guests cannot be saved and restored; empty if they can.

    The first attempt must fail, for want of space, and leave the guest alive: there are releases
    where it does not, and there a user's sandbox must never be put at risk.
    """
    small, image = place / "small", place / "image"
    for directory in (small, image, place / "state2"):
        directory.mkdir()
    kernel.mount("none", small, "tmpfs", data="size=64k")

    def saves(into: Path) -> bool:
        verb = ["checkpoint", "--leave-running", "--compression=none", f"--image-path={into}"]
        argv = [str(runsc), f"--root={place / 'state'}", *verb, _name()]
        try:
            return run_sync(argv, timeout_s=_SAVE_S, check=False).returncode == 0
        except TupperError:
            return False

    if saves(small):
        return "gVisor saved a guest where there was no room for it"
    if not saves(image):
        return "this runsc cannot save a guest and leave it alive"
    _kill(place)
    argv = _command(runsc, platform, place, state="state2", verb=("restore", "--detach"))
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - the guest keeps its outputs open
            run_sync([*argv[:-1], f"--image-path={image}", argv[-1]], timeout_s=_SAVE_S,
                     env=minimal_env(), output=nothing)  # fmt: skip
    except TupperError as error:
        return f"this runsc cannot restore a guest: {_first_line(error.message)}"
    return ""


def _name() -> str:
    return f"trial{os.getpid():08d}"


def _command(
    runsc: Path,
    platform: Platform,
    place: Path,
    *,
    state: str = "state",
    verb: Sequence[str] = ("run", "--detach"),
) -> list[str]:
    return [
        str(runsc),
        f"--root={place / state}",
        f"--platform={platform}",
        "--network=sandbox",
        "--host-uds=create",
        "--overlay2=root:memory",
        "--net-disconnect-ok",
        "--ignore-cgroups",
        *verb,
        f"--bundle={place}",
        _name(),
    ]


def _drain(reader: int) -> str:
    with contextlib.suppress(BlockingIOError):
        return os.read(reader, 65536).decode(errors="replace")
    return ""


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:500]


def _read_until_ready(reader: int, deadline: float) -> str:
    said = ""
    while not said.endswith("ready\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            break
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        said += chunk.decode(errors="replace")
    return said


def _judge(platform: Platform, said: str, state: Path) -> Trial:
    lines = said.splitlines()
    if not lines or lines[-1] != "ready":
        if "broken" in lines:
            reason = "this runsc cannot run ls and stat of a current system; it is too old"
        else:
            reason = "a guest did not get ready in time"
        return Trial(platform, works=False, reason=reason)
    version, before, after = lines[-4:-1]
    took_s = float(after.split()[0]) - float(before.split()[0])
    idle = _idle_percent(state)
    words = version.split()
    return Trial(
        platform,
        works=True,
        kernel=words[2] if len(words) > 2 else "",
        start_ms=round(took_s / _STARTS * 1000, 2),
        idle_percent=round(idle, 2),
    )


def _idle_percent(state: Path) -> float:
    pids = find_processes(state)
    before, started = _cpu_ns(pids), time.monotonic()
    time.sleep(_IDLE_S)
    return (_cpu_ns(pids) - before) / 1e7 / (time.monotonic() - started)


def _cpu_ns(pids: Iterable[int]) -> int:
    """Time on a CPU of all threads. Source: proc(5), ``schedstat``."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError):
                total += int(path.read_text().split()[0])
    return total


def _kill(place: Path) -> None:
    for state in ("state", "state2"):
        for pid in find_processes(place / state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def build_tree(root: Path, programs: Sequence[str] = PROGRAMS) -> None:
    """A root filesystem with a handful of the host's own programs and what they need.

    Raises:
        ProgramFailed: the host lacks one of them.
        OSError: a copy failed.
    """
    (root / "bin").mkdir(parents=True)
    for directory in ("dev", "proc", "sys", "tmp"):
        (root / directory).mkdir()
    libraries: set[str] = set()
    for name in programs:
        program = shutil.which(name, path="/usr/bin:/bin")
        if program is None:
            raise FileNotFoundError(f"the host has no program {name} to try gVisor with")
        shutil.copy(program, root / "bin" / name)
        said = run_sync(["ldd", program], timeout_s=_TIMEOUT_S, check=False)
        libraries.update(parse_ldd(said.text))
    for library in libraries:
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def parse_ldd(text: str) -> list[str]:
    """The files that a program loads, from the output of ldd(1)."""
    return [match.group(1) for line in text.splitlines() if (match := _LIBRARY.search(line))]


def _config(root: Path) -> str:
    return json.dumps(
        {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/sh", "-c", _SCRIPT],
                "cwd": "/",
                "env": ["PATH=/bin"],
            },
            "root": {"path": str(root)},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {
                "namespaces": [
                    *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                    {"type": "network", "path": "/proc/self/ns/net"},
                ]
            },
        }
    )
