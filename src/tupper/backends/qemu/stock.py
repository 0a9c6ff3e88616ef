"""Getting the distribution's own kernel, without installing it."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from tupper.backends.qemu import apt, kernel
from tupper.backends.qemu.modules import choose_modules
from tupper.core.errors import ProgramFailed
from tupper.core.paths import make_private

# Debian's, then Ubuntu's. Not the cloud flavour: it cannot mount directories of the host.
_META = {
    "x86_64": ("linux-image-amd64", "linux-image-generic"),
    "aarch64": ("linux-image-arm64", "linux-image-generic"),
}
_IMAGE = r"linux-image-\d.*"
_MODULES = r"linux-modules-\d.*"


async def fetch_stock(
    home: Path, *, progress: kernel.Progress, machine: str = platform.machine()
) -> kernel.Kernel:
    """Fetch the newest kernel of the machine's own mirror.

    Raises:
        ProgramFailed: it cannot be had; the text says what apt said.
        ProgramNotFound: there is no apt.
        InvalidArgument: the kernel lacks something that a guest needs.
    """
    make_private(home)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=home) as name:
        place = Path(name)
        found, image = await apt.fetch(place, _META.get(machine, ()), _IMAGE)
        progress(f"qemu: fetching {image}")
        package = await _download(found, image)
        await apt.unpack(package, place / "x")
        # Ubuntu has the modules in a package of their own.
        if modules := await found.dependency(image, _MODULES):
            await apt.unpack(await found.download(modules), place / "x")
        version = await apt.version_of(package)
        return _keep(home, place / "x", f"stock-{image}-{version}", f"package {image} {version}")


async def _download(found: apt.Apt, package: str) -> Path:
    try:
        return await found.download(package)
    except ProgramFailed:
        await found.refresh()  # the lists name a version that the mirror has no more
        return await found.download(package)


def _keep(home: Path, root: Path, name: str, source: str) -> kernel.Kernel:
    images = sorted(root.glob("boot/vmlinu[xz]-*"))
    directories = sorted((*root.glob("lib/modules/*"), *root.glob("usr/lib/modules/*")))
    if not images or not directories:
        raise ProgramFailed(f"{source} holds no kernel with modules")
    chosen = choose_modules(directories[-1])
    return kernel.keep(home, name.replace("/", "-"), images[-1].read_bytes(), chosen, source=source)
