"""From a kernel as distributions ship it to the ELF file that QEMU enters directly. Pure.

A ``bzImage`` is a small program that unpacks the real kernel, which takes a second under emulation.
So it is unpacked here, once. Source: Linux, ``Documentation/x86/boot.rst`` (the setup header,
protocol 2.08 and newer), ``scripts/extract-vmlinux``; LZ4's "legacy frame" and block formats.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import sys
import zlib

from tupper.core.errors import InvalidArgument

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_ELF = b"\x7fELF"
_ARM64_MAGIC = b"ARM\x64"  # at 56: Documentation/arm64/booting.rst
_LARGEST_BYTES = 512 * 1024 * 1024


def unpack_kernel(image: bytes) -> bytes:
    """The kernel itself: an ELF file, or arm64's ``Image``.

    Raises:
        InvalidArgument: it is no kernel, or packed in a way that is not known.
    """
    if image[:4] == _ELF or image[56:60] == _ARM64_MAGIC:
        return image
    if image[:2] == b"\x1f\x8b":  # arm64's Image.gz
        return unpack_kernel(_inflate(image))
    if image[4:8] == b"zimg":  # arm64's vmlinuz.efi
        offset, size = struct.unpack_from("<II", image, 8)
        return unpack_kernel(_unpack(image[offset : offset + size]))
    if image[0x202:0x206] == b"HdrS"[:0] or image[0x202:0x206] != b"HdrS":
        raise InvalidArgument("not a Linux kernel: neither an ELF file, a bzImage nor an Image")
    offset, size = struct.unpack_from("<II", image, 0x248)
    start = ((image[0x1F1] or 4) + 1) * 512 + offset
    kernel = _unpack(image[start : start + size])
    if kernel[:4] != _ELF:
        raise InvalidArgument("the bzImage holds no ELF file")
    return kernel


def release_of(image: bytes) -> str:
    """What ``uname -r`` will say; empty if the file does not tell."""
    if image[0x202:0x206] == b"HdrS":
        offset = 0x200 + struct.unpack_from("<H", image, 0x20E)[0]
        text = image[offset : offset + 256]
    else:
        at = image.find(b"Linux version ")
        text = image[at + 14 : at + 270] if at >= 0 else b""
    return text.split(b" ")[0].split(b"\0")[0].decode("ascii", errors="replace")


def _unpack(packed: bytes) -> bytes:
    try:
        if packed[:2] == b"\x1f\x8b":
            return _inflate(packed)
        if packed[:6] == b"\xfd7zXZ\0" or packed[:3] == b"\x5d\0\0":
            return lzma.LZMADecompressor().decompress(packed, _LARGEST_BYTES)
        if packed[:4] == b"\x28\xb5\x2f\xfd":
            return zstd.ZstdDecompressor().decompress(packed, _LARGEST_BYTES)
        if packed[:4] == b"\x02\x21\x4c\x18":
            return unpack_lz4(packed)
        if packed[:3] == b"BZh":
            return bz2.BZ2Decompressor().decompress(packed, _LARGEST_BYTES)
    except (ValueError, EOFError, IndexError, lzma.LZMAError, zlib.error, zstd.ZstdError) as error:
        raise InvalidArgument(f"the kernel is damaged: {error}") from error
    raise InvalidArgument(f"the kernel is packed in an unknown way ({packed[:4].hex()})")


def _inflate(packed: bytes) -> bytes:
    return zlib.decompressobj(31).decompress(packed, _LARGEST_BYTES)


def unpack_lz4(packed: bytes) -> bytes:
    """Unpack LZ4's legacy frame, which ``lz4 -l`` makes: blocks of 8 MiB, each with its length.

    Raises:
        ValueError, IndexError: it is damaged.
    """
    out = bytearray()
    at = 4
    while at + 4 <= len(packed):
        (size,) = struct.unpack_from("<I", packed, at)
        at += 4
        if size == 0 or at + size > len(packed):
            break  # the kernel's build appends the unpacked size
        out += _unpack_lz4_block(packed[at : at + size])
        at += size
    return bytes(out)


def _unpack_lz4_block(block: bytes) -> bytearray:
    out = bytearray()
    at = 0
    while True:
        token = block[at]
        size, at = _lz4_length(block, at + 1, token >> 4)
        out += block[at : at + size]
        at += size
        if at >= len(block):
            return out
        distance = block[at] | block[at + 1] << 8
        size, at = _lz4_length(block, at + 2, token & 15)
        size += 4
        start = len(out) - distance
        if distance == 0 or start < 0:
            raise ValueError("a match lies before the begin")
        piece = out[start : start + size]
        while len(piece) < size:  # it overlaps itself
            piece += piece[: size - len(piece)]
        out += piece


def _lz4_length(block: bytes, at: int, size: int) -> tuple[int, int]:
    if size == 15:
        while True:
            more = block[at]
            at += 1
            size += more
            if more != 255:
                break
    return size, at
