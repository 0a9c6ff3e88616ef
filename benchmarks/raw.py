"""The reference: ``runsc`` by hand on the root filesystem of the template that ours use.

No network, no disk quota, no agent. The same program and the same platform as the backend chose.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tupper.cli import _host
from tupper.core.backend import Rootfs
from tupper.core.errors import ProgramFailed
from tupper.core.paths import find_paths
from tupper.core.process import run_sync
from tupper.engine.assembly import recipe_dirs
from tupper.images import Images, Templates

LOGIN = ("/bin/bash", "-l", "-c")
_TIMEOUT_S = 120
_ENV = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
]


@dataclass
class Raw:
    """A runsc with a state directory of its own."""

    runsc: str
    platform: str
    rootfs: Path
    scratch: Path
    count: int = 0

    def _command(self, *verb: str) -> list[str]:
        flags = [f"--root={self.scratch}/state", "--network=none", f"--platform={self.platform}"]
        return [self.runsc, *flags, "--overlay2=root:memory", "--ignore-cgroups", *verb]

    def _bundle(self, args: Sequence[str]) -> tuple[str, Path]:
        self.count += 1
        name = f"raw{self.count:06d}"
        bundle = self.scratch / name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(_config(self.rootfs, args)))
        return name, bundle

    def run(self, script: str) -> tuple[float, float]:
        """``runsc run``: a machine for one command of a login shell, to its end.

        Returns:
            Seconds until the command was done, as its output tells, and until runsc had ended.
        """
        name, bundle = self._bundle((*LOGIN, f"{script}; echo done"))
        started = time.perf_counter()
        with subprocess.Popen(
            self._command("run", "--bundle", str(bundle), name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            said = process.stdout.readline() if process.stdout else b""
            command_s = time.perf_counter() - started
            code = process.wait(_TIMEOUT_S)
        life_s = time.perf_counter() - started
        if code or said != b"done\n":
            raise RuntimeError(f"runsc run: exit status {code}, said {said!r}")
        shutil.rmtree(bundle)
        return command_s, life_s

    def start(self, *args: str) -> str:
        """``runsc run --detach``; the id."""
        name, bundle = self._bundle(args)
        _call(self._command("run", "--detach", "--bundle", str(bundle), name))
        return name

    def copy(self, name: str) -> str:
        """``runsc checkpoint`` of a machine that goes on, ``runsc restore``; the copy's id."""
        self.count += 1
        copy = f"raw{self.count:06d}"
        bundle = self.scratch / copy
        shutil.copytree(self.scratch / name, bundle)
        image = bundle / "image"
        image.mkdir()
        verb = ("checkpoint", "--leave-running", "--compression=none", f"--image-path={image}")
        _call(self._command(*verb, name))
        restore = ("restore", "--detach", f"--image-path={image}", f"--bundle={bundle}")
        _call(self._command(*restore, copy))
        return copy

    def exec(self, name: str, *args: str) -> None:
        """``runsc exec``."""
        _call(self._command("exec", name, *args))

    def pid(self, name: str) -> int:
        """The machine's process on the host."""
        done = subprocess.run(
            self._command("state", name), capture_output=True, check=True, timeout=_TIMEOUT_S
        )
        return int(json.loads(done.stdout)["pid"])

    def delete(self, name: str) -> None:
        """End it and forget it."""
        _call(self._command("delete", "--force", name))
        shutil.rmtree(self.scratch / name, ignore_errors=True)


def _call(command: list[str]) -> None:
    # Files, not pipes: what runsc leaves running keeps its outputs open. And as ours waits: the
    # standard library's wait with a time limit looks every 50 ms only.
    with tempfile.TemporaryFile() as output:
        try:
            run_sync(command, timeout_s=_TIMEOUT_S, env=os.environ, output=output)
        except ProgramFailed as error:
            output.seek(0)
            raise RuntimeError(f"{error}: {output.read()[-2000:]!r}") from error


def _config(rootfs: Path, args: Sequence[str]) -> dict[str, object]:
    capabilities = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_KILL",
        "CAP_SETGID",
        "CAP_SETUID",
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": _ENV,
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "root": {"path": str(rootfs), "readonly": False},
        "hostname": "raw",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


def find_rootfs(template: str) -> Rootfs:
    """The root filesystem that ours use for a template; built where it is missing."""
    paths = find_paths()
    images = Images(paths.data, paths.cache, id_map=None if os.geteuid() == 0 else "unshare")
    return asyncio.run(Templates(images, recipe_dirs(paths)).ensure(template))


@contextlib.contextmanager
def raw_runsc(platform: str | None = None, *, template: str = "base") -> Iterator[Raw]:
    """A :class:`Raw`; whatever it started and was not deleted is gone afterwards."""
    probe = next(p for p in asyncio.run(_host.probe_backends()) if p.backend == "gvisor")
    if not probe.usable:
        raise SystemExit(f"gvisor is not usable here: {probe.reason}")
    rootfs = find_rootfs(template)
    chosen = platform or probe.mechanism.split()[-1].lower()
    scratch = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))
    raw = Raw(probe.details["runsc"], chosen, rootfs.path, scratch)
    try:
        yield raw
    finally:
        for left in scratch.glob("raw*"):
            with contextlib.suppress(RuntimeError):
                raw.delete(left.name)
        shutil.rmtree(scratch, ignore_errors=True)
