"""What every run of the tests starts from: a runsc that works and the built templates.

Building ``base`` takes a minute or more, so its result is kept in the user's cache directory and
each run gets hard links to it: a run costs a second, and what a test removes it removes for itself
only. The kept store is an ordinary home of tupper; ``setup`` judges at each run whether it is still
right (the recipe, the package sources, the kernel), and builds what is not. One lock makes runs
that begin together wait for the one that builds.

As a program, ``python tests/prepared.py``: bring the home that ``TUPPER_HOME`` names to where
sandboxes start, and leave no background process. It has a process of its own because it blocks for
long, and because the settings of the tests' own process stay untouched.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Not the locks of the images: a link to one would be the same lock.
KEPT = ("backends", "images/roots", "images/refs")
_BUILD_TIMEOUT_S = 1800
_LINK_TIMEOUT_S = 300
_NO_BACKEND = 3


def prepare_home(home, *, keep):
    """Make a home ready for sandboxes; why that is not possible, or nothing.

    Args:
        home: of this run.
        keep: the home is kept between runs, so it needs no other one to start from.
    """
    from tupper.core.paths import find_paths

    cache = find_paths({k: v for k, v in os.environ.items() if k != "TUPPER_HOME"}).cache
    if keep:
        return _set_up(home, cache)
    kept = cache / "tests"
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for store in (kept / "home").glob("tupper.db*"):
            store.unlink()  # another version's; nothing of it is kept
        reason = _set_up(kept / "home", cache)
        if not reason:
            link_home(kept / "home", home)
    return reason


def link_home(source, target, *, without=()):
    """Give one home what another one has prepared: links, or copies on another disk.

    Args:
        source, target: homes.
        without: names of templates that it does not need; the large one takes seconds.

    ``target`` gets directories of its own; files of root filesystems are never written to.
    """
    from tupper.core.paths import make_private
    from tupper.core.userns import AS_ROOT

    make_private(target)
    prefix = () if os.geteuid() == 0 else AS_ROOT
    for name in KEPT:
        make_private((target / name).parent)
        if not (source / name).is_dir():
            continue
        left_out = _roots_of(source, without) if name == "images/roots" else set()
        for how in ("--link", "--reflink=auto"):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(target / name)
            make_private(target / name)
            entries = [e for e in (source / name).iterdir() if e.name not in left_out]
            if not entries:
                break
            command = [*prefix, "cp", "-a", how, "-t", str(target / name), "--", *map(str, entries)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LINK_TIMEOUT_S, check=False
            )
            if done.returncode == 0:
                break
        else:
            raise OSError(f"cannot copy {source / name}: {done.stderr[-500:]}")


def _roots_of(home, templates):
    """The directories in ``images/roots`` of these templates."""
    found = set()
    for file in (home / "images" / "refs").glob("*.json"):
        reference = json.loads(file.read_bytes())
        if reference["name"].removeprefix("template:") in templates:
            found.add(reference["digest"].removeprefix("sha256:"))
    return found


def _set_up(home, cache):
    """Run this file as a program; the last line that it said if it failed."""
    env = os.environ | {"TUPPER_HOME": str(home), "TUPPER_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return ""
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    if done.returncode == _NO_BACKEND:
        return last
    # A host that can start sandboxes and a tupper that cannot: no reason to skip.
    raise RuntimeError(f"the setup of the tests failed with status {done.returncode}: {last}")


def main():
    """Prepare the home of the environment, build the small templates too, leave."""
    from tupper.cli import _control, _output
    from tupper.cli.kill import end_everything
    from tupper.cli.setup import prepare
    from tupper.core.errors import BackendUnavailable
    from tupper.core.paths import find_paths

    try:
        prepare(lambda line: print(line, file=sys.stderr), quiet=False)
        with _output.progress(quiet=False) as bar:
            for name in ("minimal", "code-interpreter"):
                _control.build_template({"name": name}, bar, log=None)
        _control.prune_images()
    except BackendUnavailable as error:
        print(f"no usable backend: {error}".replace("\n", " "))
        return _NO_BACKEND
    finally:
        if find_paths().address_file.exists():
            end_everything()
    return 0


if __name__ == "__main__":
    sys.exit(main())
