"""Environments with the published SDKs, made once and kept in the user's cache directory."""

import fcntl
import shutil
import subprocess
import sys
from contextlib import contextmanager

from tupper.core.paths import find_paths

NEW, OLD, JAVASCRIPT = "2.63.0", "2.45.1", "2.51.0"
# The newest of e2b-code-interpreter that takes each.
INTERPRETERS = {NEW: "2.11.5", OLD: "2.9.2", JAVASCRIPT: "2.8.0"}
_LIMIT_S = 400


class CannotMake(Exception):
    """There is no such environment, and it cannot be made here; says why."""


def python_with(version):
    """The interpreter of an environment with this version of ``e2b``."""
    interpreter = INTERPRETERS[version]
    name = f"e2b-{version}-{interpreter}-py{sys.version_info.major}{sys.version_info.minor}"
    with _place(name) as (place, is_ready):
        python = place / "bin" / "python"
        if not is_ready:
            wanted = (f"e2b=={version}", f"e2b-code-interpreter=={interpreter}")
            _run(sys.executable, "-m", "venv", str(place))
            _run(str(python), "-m", "pip", "install", "--quiet", *wanted)
        return str(python)


def javascript_with(version):
    """(node, the directory whose ``node_modules`` has this version of ``e2b``)."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise CannotMake("no node and npm on this host")
    interpreter = INTERPRETERS[version]
    with _place(f"e2b-{version}-{interpreter}-node") as (place, is_ready):
        if not is_ready:
            (place / "package.json").write_text('{"private": true}\n')
            wanted = (f"e2b@{version}", f"@e2b/code-interpreter@{interpreter}")
            _run(npm, "install", "--silent", "--prefix", str(place), *wanted)
        return node, str(place)


@contextmanager
def _place(name):
    """A directory of the cache, one maker at a time; it counts as ready only when finished."""
    root = find_paths().cache / "test-envs"
    root.mkdir(parents=True, exist_ok=True)
    place, mark = root / name, root / f"{name}.ready"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_ready = mark.exists() and place.exists()
        if not is_ready:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        yield place, is_ready
        mark.touch()


def _run(*command):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, stdin=None
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CannotMake(f"{' '.join(command[:4])}: {last}")
