"""What the outer machine boots: the distribution's kernel with KVM for AMD, and a first file system.

Its root filesystem is the host's own, read-only: ``/usr``, ``/etc``, this checkout, its virtual
environment and the Python below that. So there is nothing to install and no image to build, and what
runs inside is what runs here. The kernel is kept in the user's cache, by what is taken from it.
"""

import asyncio
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import apt, kernel, stock
from tupper.backends.qemu.initramfs import Entry, render_archive
from tupper.backends.qemu.modules import (
    built_in,
    choose_modules,
    find_modules,
    load_order,
    parse_depends,
    read_module,
)
from tupper.core.errors import ProgramNotFound
from tupper.core.paths import find_paths, make_private

INSIDE = Path("/nested")  # where the outer machine finds results and kernels
ROOT = Path(__file__).parents[2]
_MODULES = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay", "kvm_amd", "tun", "vhost_vsock"),
    *("bridge", "veth"),
)
_BUSYBOX = Path("/bin/busybox")


class CannotNest(Exception):
    """This host cannot have such a machine; says why."""


@dataclass(frozen=True)
class Share:
    """A directory of the host that the outer machine sees.

    Args:
        tag: its name for the kernel.
        source: where it is.
        target: where it is seen.
        how: ``ro``; ``over``: what is written there is lost; ``rw``.
    """

    tag: str
    source: Path
    target: Path
    how: str


@dataclass(frozen=True)
class Image:
    """What boots.

    Args:
        kernel: an ELF file.
        first: the archive of the first file system.
        kernels: a home of the QEMU backend that has the same kernel for its guests.
    """

    kernel: Path
    first: Path
    kernels: Path


def shares(image, results):
    """The root filesystem, in the order in which it is put together."""
    found = [
        Share("usr", Path("/usr"), Path("/usr"), "ro"),
        Share("etc", Path("/etc"), Path("/etc"), "over"),
        Share("kernels", image.kernels, INSIDE / "kernels", "ro"),
        Share("results", results, INSIDE / "results", "rw"),
    ]
    for number, path in enumerate(_python_places()):
        found.append(Share(f"python{number}", path, path, "ro"))
    return found


def _python_places():
    """The checkout, and what the Python of the tests needs beside it."""
    places = [ROOT]
    for path in map(Path, (sys.prefix, sys.base_prefix)):
        if not any(path.is_relative_to(above) for above in (*places, Path("/usr"))):
            places.append(path)
    return places


def links():
    """The directories that are links on a host with a merged ``/usr``."""
    names = [name for name in ("bin", "sbin", "lib", "lib64") if (Path("/") / name).is_symlink()]
    return [(f"/{name}", os.readlink(f"/{name}")) for name in names]


def why_not():
    """Why this host cannot have such a machine; empty if it may."""
    if platform.machine() != "x86_64":
        return "the emulated processor runs the host's own programs, which must be for x86-64"
    wanted = {"qemu-system-x86_64", "mksquashfs", "setpriv", "mkfs.ext4", "apt-get", "dpkg-deb"}
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if missing := sorted(name for name in wanted if not shutil.which(name, path=path)):
        return f"not installed: {', '.join(missing)}"
    if not _BUSYBOX.exists():
        return f"there is no {_BUSYBOX}"
    if not Path("/bin").is_symlink():
        return "/bin is no link to /usr/bin here"
    return ""


def make_image(into):
    """Make what boots.

    Args:
        into: a directory for what is made for this run only.
    """
    place, order = _kept_kernel()
    made = next((place / "backends" / "qemu" / "kernels").iterdir())
    entries = [*_skeleton(), *(_module(place, name, n) for n, name in enumerate(order))]
    first = into / "first.cpio"
    first.write_bytes(render_archive(entries))
    return Image(made / "vmlinux", first, place / "backends" / "qemu" / "kernels")


def _skeleton():
    directory, program = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755
    init = Path(__file__).with_name("init.sh").read_bytes()
    return [
        *(Entry(name, directory) for name in ("bin", "dev", "proc", "modules", "lower", "root")),
        Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        Entry("bin/busybox", program, _BUSYBOX.read_bytes()),
        Entry("init", program, init),
    ]


def _module(place, name, number):
    data = (place / "modules" / f"{name}.ko").read_bytes()
    return Entry(f"modules/{number:02}-{name}.ko", stat.S_IFREG | 0o644, data)


def _kept_kernel():
    """Where the kernel is kept, and its modules in order; fetched if it is not there yet."""
    key = hashlib.sha256(repr(_MODULES).encode()).hexdigest()[:16]
    kept = make_private(find_paths({**os.environ, "TUPPER_HOME": ""}).cache / "tests" / "nested")
    place = kept / key
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "order").exists():
            for old in kept.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=kept, prefix="new-") as name:
                asyncio.run(_fetch(Path(name)))
                (Path(name) / "kept").rename(place)
    return place, (place / "order").read_text().split()


async def _fetch(place):
    try:
        found, name = await apt.fetch(place, stock._META["x86_64"], stock._IMAGE)
    except ProgramNotFound as error:
        raise CannotNest(str(error)) from error
    package = await stock._download(found, name)
    await apt.unpack(package, place / "x")
    if more := await found.dependency(name, stock._MODULES):
        await apt.unpack(await found.download(more), place / "x")
    (image,) = (place / "x").glob("boot/vmlinuz-*")
    (modules,) = (*(place / "x").glob("lib/modules/*"), *(place / "x").glob("usr/lib/modules/*"))
    kept = place / "kept"
    (kept / "modules").mkdir(parents=True)
    home = kept / "backends" / "qemu"
    home.mkdir(parents=True)
    chosen = choose_modules(modules)
    kernel.keep(home, f"stock-{name}", image.read_bytes(), chosen, source=f"package {name}")
    _keep_modules(modules, kept)


def _keep_modules(source, kept):
    there, inside = find_modules(source), built_in(source)
    if missing := [name for name in _MODULES if name not in there and name not in inside]:
        raise CannotNest(f"the kernel {source.name} has no {', '.join(missing)}")
    depends, todo = {}, [name for name in _MODULES if name in there]
    while todo:
        name = todo.pop()
        if name not in depends:
            depends[name] = parse_depends(read_module(there[name]))
            todo += [need for need in depends[name] if need in there]
    order = [name for name in load_order(_MODULES, depends) if name in there]
    for name in order:
        (kept / "modules" / f"{name}.ko").write_bytes(read_module(there[name]))
    (kept / "order").write_text("\n".join(order))
