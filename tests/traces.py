"""What a sandbox could leave behind on this host, as a set of names."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from tupper.core.paths import find_paths

_SETTLE_S = 20.0


def host_traces():
    """Everything on the host that carries our home or our engine's id."""
    paths = find_paths()
    home, runtime = f"{paths.data}/", f"{paths.runtime}/"
    found = {f"child {pid} {name}" for pid, name in children(os.getpid())}
    found |= {f"mount {place}" for place in mounts() if place.startswith((home, runtime))}
    found |= {f"loop {file}" for file in loop_files() if file.startswith(home)}
    found |= {f"socket {p.name}" for p in (paths.runtime / "s").glob("*.sock")}
    if engine_id := find_engine_id(paths.data / "tupper.db"):
        found |= {f"netns {p.name}" for p in entries("/run/netns") if engine_id in p.name}
        found |= {f"link {p.name}" for p in entries("/sys/class/net") if engine_id in p.name}
        found |= {f"cgroup {p}" for p in cgroups() if engine_id in p.name}
    return found


def find_engine_id(store):
    """The id that is part of every host-wide name of our engine; empty before its first start."""
    if not store.exists():
        return ""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        try:
            rows = db.execute("SELECT value FROM engine WHERE key = 'id'").fetchall()
        except sqlite3.OperationalError:
            return ""
    return rows[0][0] if rows else ""


def settle(before):
    """What is there beyond ``before`` once everything had time to go."""
    end = time.monotonic() + _SETTLE_S
    while (left := host_traces() - before) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def children(parent):
    """Processes below ``parent`` (zombies too), without the background process and what it owns."""
    daemon = read(find_paths().runtime / "pid").strip()
    for entry in entries("/proc"):
        if not entry.name.isdigit() or entry.name == daemon:
            continue
        stat = read(entry / "stat")
        if not stat:
            continue
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        if int(stat[stat.rindex(")") + 2 :].split()[1]) == parent:
            yield int(entry.name), name


def mounts():
    for line in read("/proc/self/mountinfo").splitlines():
        yield line.split()[4]


def loop_files():
    for entry in entries("/sys/block"):
        if entry.name.startswith("loop"):
            yield read(entry / "loop" / "backing_file").strip()


def cgroups():
    root = Path("/sys/fs/cgroup")
    for pattern in ("tupper*", "*/tupper*", "tupper*/*", "*/tupper*/*"):
        yield from root.glob(pattern)


def entries(directory):
    try:
        return sorted(Path(directory).iterdir())
    except OSError:
        return []


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""
