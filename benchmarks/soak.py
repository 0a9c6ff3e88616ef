"""Many commands on one sandbox, many lives of sandboxes; growth, leaks, deaths of the agent.

Bounded by ``--commands``, ``--cycles`` and ``--minutes``; with ``--state FILE`` the totals are
kept in a file, and a later call goes on from there. The whole is 20,000 commands a platform and
500 cycles.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.harness import background_pid, pss_bytes, spread, timed
from tupper import Sandbox
from tupper.core.paths import find_paths
from tupper.network.ruleset import LINK_PREFIX

_LOOKS = 20
_AGENT = "awk '/VmRSS/ {print $2}' /proc/1/status; ls /proc/1/fd | wc -l; ls /proc/1/task | wc -l"


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    platform = options.platform or "default"
    state = _State(options.state)
    end = time.monotonic() + options.minutes * 60
    half = end - options.minutes * 30
    commands = _commands(options.commands, extra, state.of(f"commands {platform}"), half)
    state.save()
    lives = _lives(options.cycles, extra, state.of(f"lives {platform}"), end)
    state.save()
    return {"platform": platform, "commands": commands, "lives": lives}


class _State:
    """Totals over several calls."""

    def __init__(self, file: str | None) -> None:
        self._file = Path(file) if file else None
        text = self._file.read_text() if self._file and self._file.exists() else "{}"
        self._all: dict[str, dict[str, int]] = json.loads(text)

    def of(self, what: str) -> dict[str, int]:
        return self._all.setdefault(what, {"done": 0, "failed": 0})

    def save(self) -> None:
        if self._file:
            self._file.write_text(json.dumps(self._all, indent=2))


def _commands(
    count: int, extra: dict[str, object], total: dict[str, int], end: float
) -> dict[str, object]:
    todo = max(0, count - total["done"])
    times: list[float] = []
    errors: list[str] = []
    looks: list[dict[str, float]] = []
    with Sandbox.create(timeout=24 * 3600, user="root", **extra) as sbx:
        for number in range(todo):
            if time.monotonic() > end:
                break
            if number % max(1, todo // _LOOKS) == 0:
                looks.append(_told(number, _look(sbx)))
            try:
                times.append(timed(lambda: sbx.commands.run("true")))
            except Exception as error:  # noqa: BLE001 - counted, and told
                errors.append(f"{type(error).__name__}: {error}")
                if not sbx.is_running():
                    break
        if sbx.is_running():
            looks.append(_told(len(times), _look(sbx)))
            left = len(sbx.commands.list())
        else:
            left = -1
    total["done"] += len(times)
    total["failed"] += len(errors)
    tenth = max(1, len(times) // 10)
    return {
        "total": dict(total),
        "command_ms": spread(times) if times else None,
        "first_tenth_ms": spread(times[:tenth]) if times else None,
        "last_tenth_ms": spread(times[-tenth:]) if times else None,
        "processes_left_inside": left,
        "looks": looks,
        "errors": errors[:20],
    }


def _look(sbx: Sandbox) -> dict[str, float]:
    agent_kib, descriptors, threads = map(int, sbx.commands.run(_AGENT).stdout.split())
    return {
        "agent_mb": round(agent_kib * 1024 / 1e6, 1),
        "agent_descriptors": descriptors,
        "agent_threads": threads,
        **_size_of("machine", _machine_pid(sbx.sandbox_id)),
        **_look_outside(),
        "metrics": len(sbx.get_metrics()),
    }


def _look_outside() -> dict[str, float]:
    return {**_size_of("background", background_pid()), "data_mb": _data_mb()}


def _told(number: int, look: dict[str, float]) -> dict[str, float]:
    """A look, told at once: the whole takes hours."""
    look = {"after": number, **look}
    print(json.dumps(look), file=sys.stderr, flush=True)
    return look


def _size_of(name: str, pid: int) -> dict[str, float]:
    """What a process of the host has; nothing where there is none."""
    if not pid:
        return {}
    return {
        f"{name}_pss_mb": round(pss_bytes([pid]) / 1e6, 1),
        f"{name}_descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        f"{name}_threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
    }


def _data_mb() -> float:
    """What the product keeps for itself and for sandboxes, without images."""
    data = find_paths().data
    places = [data / "sandboxes", *data.glob("tupper.db*"), *data.glob("*.log")]
    files = [file for place in places for file in (place, *place.rglob("*"))]
    return round(sum(map(_blocks, files)) * 512 / 1e6, 1)


def _blocks(file: Path) -> int:
    try:
        return file.lstat().st_blocks
    except OSError:  # gone meanwhile
        return 0


def _machine_pid(sandbox_id: str) -> int:
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if line.startswith(b"runsc-sandbox") and sandbox_id.encode() in line:
            return int(entry.name)
    return 0


def _lives(
    count: int, extra: dict[str, object], total: dict[str, int], end: float
) -> dict[str, object]:
    todo = max(0, count - total["done"])
    with Sandbox.create(**extra) as sbx:  # so that the background process and all it keeps is there
        sbx.commands.run("true")
        prefixes = _own_prefixes(sbx.sandbox_id)
    before = _places(prefixes)
    looks = [_told(0, _look_outside())]
    times: list[float] = []
    errors: list[str] = []
    for number in range(1, todo + 1):
        if time.monotonic() > end:
            break
        if number % max(1, todo // _LOOKS) == 0:
            looks.append(_told(number, _look_outside()))
        try:
            times.append(timed(lambda: _life(extra)))
        except Exception as error:  # noqa: BLE001 - counted, and told
            errors.append(f"{type(error).__name__}: {error}")
    looks.append(_told(len(times), _look_outside()))
    total["done"] += len(times)
    total["failed"] += len(errors)
    return {
        "total": dict(total),
        "life_ms": spread(times) if times else None,
        "looks": looks,
        "left_on_the_host": sorted(_places(prefixes) - before),
        "errors": errors[:20],
    }


def _life(extra: dict[str, object]) -> None:
    with Sandbox.create(**extra) as sbx:
        sbx.commands.run("true")


def _own_prefixes(sandbox_id: str) -> tuple[str, str]:
    """How the names of our engine's namespaces and links begin: a neighbour's do not count."""
    ending = f"-{sandbox_id}"
    netns = next(p.name for p in Path("/run/netns").iterdir() if p.name.endswith(ending))
    engine_id = netns.removesuffix(ending).removeprefix("tp-")
    return f"tp-{engine_id}-", f"{LINK_PREFIX}{engine_id}"


def _places(prefixes: tuple[str, str]) -> set[str]:
    """What our engine has on the host."""
    netns, link = prefixes
    paths = find_paths()
    found = {f"netns {p.name}" for p in Path("/run/netns").glob(f"{netns}*")}
    found |= {f"link {p.name}" for p in Path("/sys/class/net").glob(f"{link}*")}
    found |= {f"socket {p.name}" for p in (paths.runtime / "s").glob("*")}
    found |= {f"directory {p.name}" for p in (paths.data / "sandboxes").glob("*")}
    needle = str(paths.data / "sandboxes").encode()
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if line.startswith(b"runsc") and needle in line:
            found.add(f"process {entry.name}")
    # Not rglob: neighbours' groups go while it looks.
    groups = (name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    found |= {f"cgroup {name}" for name in groups if netns.split("-")[1] in name}
    mounts = Path("/proc/self/mountinfo").read_text()
    found |= {f"mount {x.split()[4]}" for x in mounts.splitlines() if needle.decode() in x}
    loops = Path("/sys/block").glob("loop*/loop/backing_file")
    return found | {f"loop {p}" for p in loops if needle.decode() in _text(p)}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
