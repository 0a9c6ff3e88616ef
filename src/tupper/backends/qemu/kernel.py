"""The kernel that guests boot.

Three kinds: *minimal*, built here from the distribution's source with our configuration, which
boots in half the time; *stock*, the distribution's own, which is there within seconds but needs
modules; or any that the user names. What was fetched or built is kept in the backend's directory,
each in one of its own, complete or not there::

    kernels/<name>/vmlinux          as QEMU enters it
    kernels/<name>/modules/NN-x.ko  in the order in which they are loaded
    kernels/<name>/kernel.json      its record
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tupper.backends.qemu.modules import choose_modules, read_module
from tupper.backends.qemu.vmlinux import release_of, unpack_kernel
from tupper.core.errors import InvalidArgument, NotFound
from tupper.core.paths import make_private

Progress = Callable[[str], None]
MINIMAL, STOCK = "minimal", "stock"
_RECORD = "kernel.json"
# Timer ticks a second, as our configuration and Debian's have it (CONFIG_HZ).
_HZ = {MINIMAL: 100, STOCK: 250}
# The name of virtio-mmio's own parameter, which only kernels have that can be told of devices.
_COMMAND_LINE_DEVICES = b"virtio_mmio.device"


class Choice(Protocol):
    """What the user has chosen (a part of the backend's options)."""

    @property
    def kernel(self) -> str:
        """``minimal``, ``stock``, a path, or empty for the best there is."""
        ...

    @property
    def modules(self) -> str:
        """The directory of that path's modules; empty for the usual one."""
        ...


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be booted.

    Args:
        path: the kernel itself, not packed.
        modules: files, in the order in which they are loaded.
        release: what ``uname -r`` says.
        source: where it comes from, for people.
        digest: of kernel and modules.
        acpi: whether it finds its devices by ACPI only, not by its command line.
    """

    path: Path
    modules: tuple[Path, ...]
    release: str
    source: str
    digest: str
    acpi: bool

    @property
    def hz(self) -> int:
        """How many timer ticks it has in a second; 0 if that is not known."""
        return _HZ.get(self.path.parent.name.partition("-")[0], 0)


async def find(home: Path, options: Choice) -> Kernel:
    """The kernel of the options, or the best that is there.

    Raises:
        NotFound: it is not there (yet).
        InvalidArgument: the file that the user named is no kernel, or lacks what a guest needs.
    """
    if options.kernel not in ("", MINIMAL, STOCK):
        return await asyncio.to_thread(_own, home, Path(options.kernel), options.modules)
    kinds = (options.kernel,) if options.kernel else (MINIMAL, STOCK)
    for kind in kinds:
        if found := newest(home, kind):
            return found
    raise NotFound(f"there is no {options.kernel or 'kernel'} for guests", hint="run: tupper setup")


def newest(home: Path, kind: str) -> Kernel | None:
    """The kernel of a kind that was put there last."""
    records = (home / "kernels").glob(f"{kind}-*/{_RECORD}")
    for record in sorted(records, key=lambda path: path.stat().st_mtime, reverse=True):
        if found := load(record.parent):
            return found
    return None


def load(directory: Path) -> Kernel | None:
    """A kernel that was kept; None if it is not there or its record is damaged."""
    try:
        body = json.loads((directory / _RECORD).read_bytes())
        release, source, digest = (str(body[name]) for name in ("release", "source", "digest"))
        acpi = bool(body["acpi"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    modules = tuple(sorted((directory / "modules").glob("*.ko")))
    return Kernel(directory / "vmlinux", modules, release, source, digest, acpi)


def keep(home: Path, name: str, image: bytes, modules: Iterable[Path], *, source: str) -> Kernel:
    """Put a kernel into the backend's directory.

    Args:
        home: the backend's directory.
        name: of the kernel's own directory.
        image: the kernel as it was found.
        modules: files, in the order in which they are loaded.
        source: where it comes from, for people.

    Raises:
        InvalidArgument: it is no kernel.
    """
    kernels = make_private(home / "kernels")
    unpacked = unpack_kernel(image)
    digest = hashlib.sha256(unpacked)
    stage = Path(tempfile.mkdtemp(prefix="new-", dir=kernels))
    try:
        _write(stage / "vmlinux", unpacked)
        (stage / "modules").mkdir()
        for number, path in enumerate(modules):
            data = read_module(path)
            digest.update(data)
            _write(stage / "modules" / f"{number:02}-{path.name.split('.')[0]}.ko", data)
        record = {
            "release": release_of(image) or release_of(unpacked),
            "source": source,
            "digest": digest.hexdigest(),
            "acpi": platform.machine() == "x86_64" and _COMMAND_LINE_DEVICES not in unpacked,
        }
        _write(stage / _RECORD, json.dumps(record).encode())
        target = kernels / name
        if target.exists():
            target.rename(stage / "older")
        stage.rename(target)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    shutil.rmtree(target / "older", ignore_errors=True)
    found = load(target)
    if found is None:
        raise NotFound(f"{target} was removed meanwhile")
    return found


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)  # QEMU may run as another user; the directories above are private


def _own(home: Path, path: Path, modules: str) -> Kernel:
    """A kernel that the user named; unpacked once."""
    try:
        status = path.stat()
        key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {modules}"
        name = f"own-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        if found := load(home / "kernels" / name):
            return found
        image = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"the kernel {path} cannot be read: {error.strerror}") from error
    directory = Path(modules) if modules else Path("/lib/modules") / (release_of(image) or "none")
    if modules and not directory.is_dir():
        raise InvalidArgument(f"there is no directory {directory} with modules")
    chosen = choose_modules(directory) if directory.is_dir() else ()
    return keep(home, name, image, chosen, source=str(path))
