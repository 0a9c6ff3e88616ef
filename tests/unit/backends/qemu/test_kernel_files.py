"""Kernels and modules as distributions pack them; nothing is started."""

import bz2
import lzma
import random
import re
import struct
import zlib

import pytest

from tupper.backends.qemu import kernel, minimal
from tupper.backends.qemu.modules import (
    NEEDED,
    choose_modules,
    load_order,
    parse_depends,
    read_module,
)
from tupper.backends.qemu.vmlinux import release_of, unpack_kernel, unpack_lz4, zstd
from tupper.core.errors import InvalidArgument, NotFound

ELF = b"\x7fELF" + bytes(random.Random(1).randrange(4) for _ in range(5000))


def lz4_literals(data):
    """A legacy frame whose blocks hold literals only, as the format allows."""
    out = b"\x02\x21\x4c\x18"
    for at in range(0, len(data), 1000):
        piece = data[at : at + 1000]
        rest = len(piece) - 15
        block = (
            b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + piece
            if rest >= 0
            else bytes([len(piece) << 4]) + piece
        )
        out += struct.pack("<I", len(block)) + block
    return out + struct.pack("<I", len(data))  # as the kernel's build does


def bzimage(packed, release=b"6.1.0-1-test (a@b) #1"):
    head = bytearray(0x400)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x280 - 0x200)
    head[0x280 : 0x280 + len(release)] = release
    struct.pack_into("<II", head, 0x248, 16, len(packed))
    return bytes(head) + b"x" * 16 + packed + b"more"


@pytest.mark.parametrize(
    "pack",
    [
        lambda data: zlib.compress(data, wbits=31),
        lambda data: lzma.compress(data, check=lzma.CHECK_CRC32),
        lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
        bz2.compress,
        zstd.compress,
        lz4_literals,
    ],
    ids=["gzip", "xz", "lzma", "bzip2", "zstd", "lz4"],
)
def test_a_bzimage_is_unpacked(pack):
    image = bzimage(pack(ELF))
    assert unpack_kernel(image) == ELF
    assert release_of(image) == "6.1.0-1-test"


def test_what_is_not_packed_stays():
    arm = bytes(56) + b"ARM\x64" + b"rest"
    assert unpack_kernel(ELF) is ELF
    assert unpack_kernel(arm) is arm
    assert unpack_kernel(zlib.compress(arm, wbits=31)) == arm
    assert release_of(b"..Linux version 6.6.1-x (gcc) #2") == "6.6.1-x"


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"#!/bin/sh\n" * 100,
        bzimage(b"\0\0\0\0"),
        bzimage(zlib.compress(b"no ELF", wbits=31)),
        bzimage(b"\xfd7zXZ\0" + b"rubbish" * 9),
        bzimage(b"\x02\x21\x4c\x18" + struct.pack("<I", 8) + b"\x1f" + b"abcdefg"),
    ],
    ids=["nothing", "script", "unknown", "no ELF", "damaged xz", "damaged lz4"],
)
def test_what_is_no_kernel_is_refused(image):
    with pytest.raises(InvalidArgument):
        unpack_kernel(image)


def test_lz4_matches_that_overlap_themselves():
    # "ab", then 4 + 15 + 1 bytes from two bytes back, then the last literals.
    block = b"\x2fab\x02\x00\x01" + b"\x50vwxyz"
    frame = b"\x02\x21\x4c\x18" + struct.pack("<I", len(block)) + block
    assert unpack_lz4(frame) == b"ab" * 11 + b"vwxyz"
    with pytest.raises(ValueError, match="before the begin"):
        unpack_lz4(b"\x02\x21\x4c\x18" + struct.pack("<I", 6) + b"\x10a\x05\x00\x10b")


def module(depends):
    return b"\x7fELF\0.modinfo\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def test_modules_come_after_what_they_need():
    depends = {"a": ("b", "c"), "b": ("c",), "c": (), "d": ("a",), "loop": ("pool",)}
    depends["pool"] = ("loop",)
    assert load_order(["d", "c"], depends) == ("c", "b", "a", "d")
    assert set(load_order(["loop"], depends)) == {"loop", "pool"}
    assert parse_depends(module("virtio-ring,virtio")) == ("virtio_ring", "virtio")
    assert parse_depends(module("")) == ()
    assert parse_depends(b"nothing") == ()


@pytest.fixture
def modules(tmp_path):
    """A directory of modules, in all the ways in which they are packed."""
    kernel_dir = tmp_path / "6.1.0-test" / "kernel"
    kernel_dir.mkdir(parents=True)
    packers = [("", bytes), (".xz", lzma.compress), (".zst", zstd.compress)]
    packers.append((".gz", lambda data: zlib.compress(data, wbits=31)))
    for number, name in enumerate((*NEEDED, "virtio_ring", "virtio")):
        suffix, pack = packers[number % 4]
        needs = {
            "virtio_blk": "virtio",
            "virtio_mmio": "virtio,virtio_ring",
            "virtio": "virtio_ring",
        }
        path = kernel_dir / f"{name.replace('_', '-')}.ko{suffix}"
        path.write_bytes(pack(module(needs.get(name, ""))))
    return kernel_dir.parent


def test_the_modules_of_a_guest(modules):
    chosen = choose_modules(modules)
    names = [path.name.split(".")[0].replace("-", "_") for path in chosen]
    assert sorted(names) == sorted((*NEEDED, "virtio_ring", "virtio"))
    assert names.index("virtio_ring") < names.index("virtio") < names.index("virtio_blk")
    assert names[-1] == "virtio_mmio"
    assert all(read_module(path).startswith(b"\x7fELF") for path in chosen)


def test_a_kernel_without_what_a_guest_needs(modules):
    next(modules.rglob("squashfs.ko*")).unlink()
    with pytest.raises(InvalidArgument, match=r"6\.1\.0-test lacks squashfs"):
        choose_modules(modules)
    (modules / "modules.builtin").write_text("kernel/fs/squashfs/squashfs.ko\n")
    assert choose_modules(modules)
    next(modules.rglob("virtio-ring.ko*")).unlink()
    with pytest.raises(InvalidArgument, match="needs virtio_ring"):
        choose_modules(modules)


class Choice:
    def __init__(self, kernel="", modules=""):
        self.kernel, self.modules = kernel, modules


async def test_kernels_are_kept_and_found(tmp_path, modules):
    with pytest.raises(NotFound) as failed:
        await kernel.find(tmp_path, Choice())
    assert failed.value.hint == "run: tupper setup"
    chosen = choose_modules(modules)
    stock = kernel.keep(
        tmp_path, "stock-1", bzimage(zstd.compress(ELF)), chosen, source="a package"
    )
    assert stock.path.read_bytes() == ELF
    assert stock.release == "6.1.0-1-test"
    assert [path.name[:3] for path in stock.modules] == [f"{n:02}-" for n in range(len(chosen))]
    assert await kernel.find(tmp_path, Choice()) == stock
    minimal_kernel = ELF + b"virtio_mmio.device\0"
    built = kernel.keep(tmp_path, "minimal-1", minimal_kernel, (), source="built")
    assert await kernel.find(tmp_path, Choice()) == built
    assert await kernel.find(tmp_path, Choice("stock")) == stock
    assert not built.acpi
    assert f"CONFIG_HZ_{built.hz}=y\n" in minimal.configuration("x86_64")
    assert stock.hz == 250  # Debian's
    again = kernel.keep(tmp_path, "stock-1", bzimage(zstd.compress(ELF)), chosen, source="another")
    assert again.digest == stock.digest
    assert again.source == "another"
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == [
        "minimal-1",
        "stock-1",
    ]


async def test_a_kernel_of_the_user(tmp_path, modules):
    own = tmp_path / "my-kernel"
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        await kernel.find(tmp_path, Choice(str(own)))
    own.write_bytes(b"no kernel")
    with pytest.raises(InvalidArgument, match="not a Linux kernel"):
        await kernel.find(tmp_path, Choice(str(own)))
    own.write_bytes(bzimage(zstd.compress(ELF)))
    found = await kernel.find(tmp_path, Choice(str(own), str(modules)))
    assert len(found.modules) == len(choose_modules(modules))
    assert found.source == str(own)
    assert not found.hz
    assert await kernel.find(tmp_path, Choice(str(own), str(modules))) == found
    with pytest.raises(InvalidArgument, match="no directory"):
        await kernel.find(tmp_path, Choice(str(own), str(tmp_path / "none")))


def test_a_damaged_record_is_no_kernel(tmp_path):
    kept = kernel.keep(tmp_path, "stock-1", ELF, (), source="x")
    record = kept.path.parent / "kernel.json"
    record.write_text("{}")
    assert kernel.load(kept.path.parent) is None
    assert kernel.newest(tmp_path, "stock") is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_configuration(machine):
    config = minimal.configuration(machine)
    lines = [line for line in config.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"CONFIG_[A-Z0-9_]+=(y|[0-9a-fx]+)", line) for line in lines)
    assert len(lines) == len(set(lines))
    assert minimal.key(config, "1") != minimal.key(config, "2") != minimal.key(config + "#", "2")
    assert minimal.unheeded(config, config) == []
    assert minimal.unheeded("CONFIG_A=y\n# CONFIG_B is not set\n", "") == ["CONFIG_A=y"]
