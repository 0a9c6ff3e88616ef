"""The guest's first file system: the agent as ``/init``, and the modules that the kernel needs.

An archive in cpio's "newc" format, not packed: unpacking takes an emulated processor longer than
reading. It holds nothing of a sandbox, so all of them share it. Source: Linux,
``Documentation/driver-api/early-userspace/buffer-format.rst``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu.kernel import Kernel
from tupper.core.paths import make_private

# Part of the key, and so of what machines that wait are found by; raise it when guests begin
# otherwise by anything else than kernel, modules and agent.
LAYOUT = "2"
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the archive.

    Args:
        name: without a slash at the begin.
        mode: kind and permissions.
        data: of a regular file.
        device: major and minor number of a device.
    """

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def render_entry(entry: Entry, number: int) -> bytes:
    """An entry as it stands in the archive."""
    name = entry.name.encode() + b"\0"
    fields = (
        *(number, entry.mode, 0, 0, 1, 0, len(entry.data)),
        *(0, 0, *entry.device, len(name), 0),
    )
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def render_archive(entries: Iterable[Entry]) -> bytes:
    """The whole archive."""
    every = (*entries, Entry("TRAILER!!!", 0))
    return b"".join(render_entry(entry, number) for number, entry in enumerate(every, 1))


def entries(agent: bytes, modules: Iterable[tuple[str, bytes]]) -> tuple[Entry, ...]:
    """What a guest begins with.

    Args:
        agent: the program.
        modules: name and content; they are loaded in the order of their names.
    """
    directory = stat.S_IFDIR | 0o755
    files = [
        Entry("dev", directory),
        Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        Entry("init", stat.S_IFREG | 0o755, agent),
    ]
    named = [Entry(f"modules/{name}.ko", stat.S_IFREG | 0o644, data) for name, data in modules]
    return (*files, *([Entry("modules", directory)] if named else []), *named)


def build(home: Path, kernel: Kernel, agent_binary: Path) -> Path:
    """The archive for a kernel and an agent; made when it is not there yet. Blocks.

    Args:
        home: the backend's directory.
        kernel: with the modules that it needs.
        agent_binary: the agent.
    """
    named = [("init", agent_binary)]
    named += [(path.name.removesuffix(".ko"), path) for path in kernel.modules]
    looks = [(name, str(path), path.stat()) for name, path in named]
    digest = _digest(tuple((n, p, s.st_size, s.st_mtime_ns, s.st_ino) for n, p, s in looks))
    place = make_private(home / "initramfs")
    target = place / f"{digest}.cpio"
    if target.exists():
        os.utime(target)
        return target
    agent = agent_binary.read_bytes()
    loaded = [(name, path.read_bytes()) for name, path in named[1:]]
    with tempfile.NamedTemporaryFile(dir=place, prefix="new-", delete=False) as file:
        fresh = Path(file.name)
        try:
            file.write(render_archive(entries(agent, loaded)))
            file.flush()
            os.fsync(file.fileno())
            fresh.chmod(0o644)  # QEMU may run as another user; the directory is private
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    _tidy(place)
    return target


@functools.lru_cache(maxsize=16)
def _digest(files: tuple[tuple[str, str, int, int, int], ...]) -> str:
    """The name of an archive: of what is in these files.

    Args:
        files: name inside, path, and what changes with a file: size, time, number.
    """
    digest = hashlib.sha256(LAYOUT.encode())
    for name, path, *_ in files:
        data = Path(path).read_bytes()
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(data).digest())
    return digest.hexdigest()[:32]


def _tidy(place: Path) -> None:
    """Keep what was used last: machines that run have read theirs."""
    files = sorted(place.glob("*.cpio"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[_KEPT:]:
        path.unlink(missing_ok=True)
