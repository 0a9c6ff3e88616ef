"""Building the guest's kernel from the distribution's source, with our configuration.

The configuration is data (``data/*.config``) over ``allnoconfig``. The result is kept by the
configuration and the version of the source, so an update of either builds another one. It takes
five minutes on two cores, 1.5 GB of disk meanwhile, and happens when the user asks for it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from tupper.backends.qemu import apt, kernel
from tupper.core.errors import BackendUnavailable, ProgramFailed
from tupper.core.paths import make_private
from tupper.core.process import run

_META = ("linux-source",)
_SOURCE = r"linux-source-\d.*"
_ARCHES = {"x86_64": ("x86", "vmlinux"), "aarch64": ("arm64", "arch/arm64/boot/Image")}
# What the build needs, and the package that brings it.
_TOOLS = {
    "make": "make", "gcc": "gcc", "ld": "binutils", "flex": "flex", "bison": "bison", "bc": "bc",
    "xz": "xz-utils", "tar": "tar", "perl": "perl", "strip": "binutils",
}  # fmt: skip
_HEADER, _HEADER_PACKAGE = Path("/usr/include/libelf.h"), "libelf-dev"
_UNPACK_TIMEOUT_S = 600.0
_CONFIGURE_TIMEOUT_S = 600.0
_BUILD_TIMEOUT_S = 7200.0
_STEPS = 1700  # compilations, roughly
_SAY_EVERY = 100


def configuration(machine: str) -> str:
    """Our configuration for a processor, as ``make allnoconfig`` takes it."""
    data = resources.files("tupper.backends.qemu") / "data"
    return "".join((data / f"{name}.config").read_text() for name in ("common", machine))


def key(config: str, version: str) -> str:
    """What tells one kernel from another."""
    return hashlib.sha256(f"{config}\0{version}".encode()).hexdigest()[:16]


def missing_packages() -> list[str]:
    """The packages without which nothing can be built here."""
    missing = {package: None for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if not _HEADER.exists():
        missing[_HEADER_PACKAGE] = None
    return list(missing)


def unheeded(wanted: str, config: str) -> list[str]:
    """The lines of our configuration that the kernel's own rules did not allow."""
    have = set(config.splitlines())
    lines = [line for line in wanted.splitlines() if line.startswith("CONFIG_")]
    return [line for line in lines if line not in have]


async def build_minimal(
    home: Path, *, progress: kernel.Progress, machine: str = platform.machine()
) -> kernel.Kernel:
    """Build the kernel, unless it is there.

    Raises:
        BackendUnavailable: tools are missing; the hint installs them.
        ProgramFailed: the source cannot be had, or the build failed.
    """
    if machine not in _ARCHES:
        raise BackendUnavailable(f"no kernel can be built for {machine} yet")
    if missing := missing_packages():
        names = " ".join(missing)
        raise BackendUnavailable(
            f"building a kernel needs {names}",
            hint=f"run: sudo apt-get install --no-install-recommends {names}",
        )
    make_private(home)
    with tempfile.TemporaryDirectory(prefix="build-", dir=home) as name:
        place = Path(name)
        found, package = await apt.fetch(place, _META, _SOURCE)
        progress(f"qemu: fetching {package}")
        archive = await found.download(package)
        version = await apt.version_of(archive)
        config = configuration(machine)
        wanted = f"{kernel.MINIMAL}-{key(config, version)}"
        if have := kernel.load(home / "kernels" / wanted):
            return have
        source = await _unpack(archive, place)
        image = await _build(source, config, machine, progress)
        return kernel.keep(home, wanted, image, (), source=f"built from {package} {version}")


async def _unpack(archive: Path, place: Path) -> Path:
    await apt.unpack(archive, place / "x")
    packed, source = _prepare(archive, place)
    await run(
        ["tar", "-xf", str(packed), "-C", str(source), "--strip-components=1"],
        timeout_s=_UNPACK_TIMEOUT_S,
    )
    return source


def _prepare(archive: Path, place: Path) -> tuple[Path, Path]:
    archive.unlink()
    packed = next((place / "x").glob("usr/src/linux-source-*.tar.*"), None)
    if packed is None:
        raise ProgramFailed(f"{archive.name} holds no source")
    source = place / "source"
    source.mkdir()
    return packed, source


async def _build(source: Path, config: str, machine: str, progress: kernel.Progress) -> bytes:
    arch, target = _ARCHES[machine]
    (source / "tupper.config").write_text(config)
    make = ["nice", "make", f"ARCH={arch}"]
    await run(
        [*make, "KCONFIG_ALLCONFIG=tupper.config", "allnoconfig"],
        timeout_s=_CONFIGURE_TIMEOUT_S,
        cwd=source,
    )
    if lost := unheeded(config, (source / ".config").read_text()):
        progress(f"qemu: this source does not know {', '.join(lost)}")
    counter = _Counter(progress)
    jobs = len(os.sched_getaffinity(0))
    await run(
        [*make, f"-j{jobs}", Path(target).name],
        timeout_s=_BUILD_TIMEOUT_S,
        cwd=source,
        on_line=counter,
    )
    if machine == "x86_64":
        await run(["strip", target], timeout_s=_CONFIGURE_TIMEOUT_S, cwd=source)
    return (source / target).read_bytes()


class _Counter:
    """Says now and then how far a build is."""

    def __init__(self, progress: kernel.Progress) -> None:
        self._progress = progress
        self._done = 0

    def __call__(self, line: str) -> None:
        if line.startswith(("  CC ", "  AS ")):
            self._done += 1
            if self._done % _SAY_EVERY == 0:
                percent = min(99, 100 * self._done // _STEPS)
                self._progress(f"qemu: building the kernel, {percent} %")
