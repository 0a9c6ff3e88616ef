"""Where guests' kernels come from, with toy packages in place of the mirror's."""

import asyncio
import shutil
import subprocess

import pytest

from tupper.backends.qemu import apt, kernel, minimal, stock, supply
from tupper.backends.qemu.modules import NEEDED
from tupper.core.errors import BackendUnavailable, ProgramFailed

_PROGRAMS = ("dpkg-deb", "make", "strip", "tar", "xz")
pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in _PROGRAMS),
    reason=f"needs {', '.join(_PROGRAMS)}",
)

# Stands in for the kernel's own: an ELF file comes out, here a program of the host.
MAKEFILE = """
allnoconfig:
\tgrep -v '^#' $(KCONFIG_ALLCONFIG) | grep -v BPF_JIT > .config
vmlinux: .config
\t@for i in $$(seq 200); do echo "  CC      x$$i.o"; done
\tcp /bin/ls vmlinux
"""


class Choice:
    def __init__(self, kernel="", modules=""):
        self.kernel, self.modules = kernel, modules


class Mirror:
    """In place of apt: packages that are made when they are asked for."""

    def __init__(self, top):
        self.top, self.versions = top, {}
        self.files, self.depends, self.asked = {}, {}, []

    def add(self, name, files, version="1.0-1"):
        """A package with these files; a value is text, bytes or a path."""
        tree = self.top / name
        for path, data in files.items():
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data if isinstance(data, bytes) else data.encode())
        (tree / "DEBIAN").mkdir(exist_ok=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: t <t@t>\n"
        (tree / "DEBIAN" / "control").write_text(f"{control}Description: t\n")
        built = self.top / f"{name}_{version}_all.deb"
        argv = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(built)]
        subprocess.run(argv, check=True, capture_output=True)
        self.files[name] = built

    async def fetch(self, place, meta, pattern):
        self.place = place
        return self, self.depends[meta[0]]

    async def dependency(self, package, pattern):
        return self.depends.get(package, "")

    async def download(self, package):
        self.asked.append(package)
        if package not in self.files:
            raise ProgramFailed(f"no {package}")
        await asyncio.to_thread(shutil.copy, self.files[package], self.place)
        return self.place / self.files[package].name

    async def refresh(self):
        self.asked.append("refresh")


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    made = Mirror(tmp_path / "mirror")
    made.top.mkdir()
    monkeypatch.setattr(apt, "fetch", made.fetch)
    return made


def add_source(mirror, version="6.9-1"):
    source = mirror.top / "linux-source-6.9"
    source.mkdir(exist_ok=True)
    (source / "Makefile").write_text(MAKEFILE)
    packed = mirror.top / "source.tar.xz"
    argv = ["tar", "-C", str(mirror.top), "-cJf", str(packed), source.name]
    subprocess.run(argv, check=True)
    files = {"usr/src/linux-source-6.9.tar.xz": packed.read_bytes()}
    shutil.rmtree(source)
    mirror.add("linux-source-6.9", files, version)
    shutil.rmtree(mirror.top / "linux-source-6.9")
    mirror.depends["linux-source"] = "linux-source-6.9"


async def test_a_kernel_is_built_once_for_each_source(tmp_path, mirror, monkeypatch):
    monkeypatch.setattr(minimal, "missing_packages", list)
    add_source(mirror)
    home, said = tmp_path / "home", []
    built = await supply.obtain(home, Choice("minimal"), progress=said.append)
    assert built.path.read_bytes()[:4] == b"\x7fELF"
    assert built.modules == ()
    assert built.source == "built from linux-source-6.9 6.9-1"
    assert any("does not know CONFIG_BPF_JIT=y" in line for line in said)
    assert any(line.endswith(" %") for line in said)
    said.clear()
    assert await supply.obtain(home, Choice("minimal"), progress=said.append) == built
    assert not any(line.endswith(" %") for line in said)
    add_source(mirror, "6.9-2")
    newer = await supply.obtain(home, Choice("minimal"), progress=said.append)
    assert newer.path != built.path
    assert await supply.obtain(home, Choice(), progress=said.append) == newer
    assert sorted(path.name for path in home.iterdir()) == ["kernels", "supply.lock"]


async def test_tools_that_are_missing_are_named(tmp_path, mirror, monkeypatch):
    monkeypatch.setattr(minimal, "missing_packages", lambda: ["flex", "libelf-dev"])
    with pytest.raises(BackendUnavailable, match="flex libelf-dev") as failed:
        await supply.obtain(tmp_path, Choice("minimal"), progress=print)
    assert failed.value.hint.endswith("apt-get install --no-install-recommends flex libelf-dev")
    assert mirror.asked == []


async def test_a_build_that_fails_leaves_nothing(tmp_path, mirror, monkeypatch):
    monkeypatch.setattr(minimal, "missing_packages", list)
    monkeypatch.setattr(minimal, "configuration", lambda machine: "")
    add_source(mirror)  # grep finds no line, so `make allnoconfig` fails
    with pytest.raises(ProgramFailed, match="failed"):
        await supply.obtain(tmp_path / "home", Choice("minimal"), progress=print)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["supply.lock"]


@pytest.mark.parametrize("apart", [False, True], ids=["Debian", "Ubuntu"])
async def test_the_stock_kernel(tmp_path, mirror, apart):
    module = b"\x7fELF\0depends=\0"
    modules = {f"lib/modules/6.9/kernel/{name}.ko": module for name in NEEDED}
    image = {"boot/vmlinuz-6.9": b"\x7fELF Linux version 6.9-test (x)"}
    mirror.depends["linux-image-amd64"] = mirror.depends["linux-image-arm64"] = "linux-image-6.9"
    mirror.add("linux-image-6.9", image if apart else {**image, **modules})
    if apart:
        mirror.add("linux-modules-6.9", modules)
        mirror.depends["linux-image-6.9"] = "linux-modules-6.9"
    (tmp_path / "fetch-left").mkdir()  # of one that was killed
    found = await supply.obtain(tmp_path, Choice(), progress=print)
    assert found.release == "6.9-test"
    assert len(found.modules) == len(NEEDED)
    assert found.source == "package linux-image-6.9 1.0-1"
    mirror.asked.clear()
    assert await supply.obtain(tmp_path, Choice(), progress=print) == found
    assert mirror.asked == []
    assert not (tmp_path / "fetch-left").exists()


async def test_old_lists_are_made_new(tmp_path, mirror):
    mirror.depends["linux-image-amd64"] = mirror.depends["linux-image-arm64"] = "linux-image-6.8"
    with pytest.raises(ProgramFailed, match="no linux-image-6"):
        await stock.fetch_stock(tmp_path, progress=print)
    assert mirror.asked == ["linux-image-6.8", "refresh", "linux-image-6.8"]
    assert kernel.newest(tmp_path, kernel.STOCK) is None
