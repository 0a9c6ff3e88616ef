"""Which modules of a kernel a guest needs, and in which order they are loaded.

The packages of distributions have no ``modules.dep``: that is made when they are installed. But
each module says what it needs, in its own section ``.modinfo`` (``depends=a,b``), where a name
stands for a file with ``-`` or ``_``. Source: modprobe(8), modinfo(8).
"""

from __future__ import annotations

import lzma
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tupper.core.errors import InvalidArgument

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# What a guest cannot do without, in an order that has the devices last.
NEEDED = ("overlay", "squashfs", "ext4", "virtio_blk", "virtio_console", "virtio_mmio")
# What makes it complete; left out where a kernel does not have it.
WANTED = ("crc32c_generic", "virtio_net", "9pnet_virtio", "9p", "virtio_balloon")
_SUFFIX = re.compile(r"\.ko(?:\.(?:xz|zst|gz))?$")
_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


def find_modules(directory: Path) -> dict[str, Path]:
    """All modules below ``lib/modules/RELEASE``, by name."""
    return {
        canonical(_SUFFIX.sub("", path.name)): path
        for path in directory.rglob("*.ko*")
        if _SUFFIX.search(path.name)
    }


def canonical(name: str) -> str:
    """The name as the kernel has it."""
    return name.replace("-", "_")


def built_in(directory: Path) -> frozenset[str]:
    """The names of what is part of the kernel itself (``modules.builtin``)."""
    try:
        lines = (directory / "modules.builtin").read_text().split()
    except OSError:
        return frozenset()
    return frozenset(canonical(_SUFFIX.sub("", Path(line).name)) for line in lines)


def read_module(path: Path) -> bytes:
    """A module as the kernel wants it: unpacked.

    Raises:
        InvalidArgument: it is damaged.
    """
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".zst":
                return zstd.decompress(data)
            case ".gz":
                return zlib.decompress(data, 31)
            case _:
                return data
    except (lzma.LZMAError, zstd.ZstdError, zlib.error) as error:
        raise InvalidArgument(f"{path} is damaged: {error}") from error


def parse_depends(module: bytes) -> tuple[str, ...]:
    """The names of the modules that a module needs."""
    found = _DEPENDS.search(module)
    names = found[1].decode("ascii", errors="replace") if found else ""
    return tuple(canonical(name) for name in names.split(",") if name)


def load_order(wanted: Iterable[str], depends: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The wanted modules and all that they need, each after what it needs itself.

    Args:
        wanted: names, in the order that is kept where nothing speaks against it.
        depends: the needs of all that can be needed.
    """
    order: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        if name in order or name in above:
            return
        for need in depends.get(name, ()):
            visit(need, above | {name})
        order[name] = None

    for name in wanted:
        visit(name, frozenset())
    return tuple(order)


def choose_modules(directory: Path) -> tuple[Path, ...]:
    """The files of the modules that a guest loads, in order.

    Raises:
        InvalidArgument: the kernel lacks something that a guest needs.
    """
    there = find_modules(directory)
    inside = built_in(directory)
    if missing := [name for name in NEEDED if name not in there and name not in inside]:
        raise InvalidArgument(f"the kernel of {directory.name} lacks {', '.join(missing)}")
    wanted = [name for name in (*WANTED, *NEEDED) if name in there]
    depends: dict[str, tuple[str, ...]] = {}
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name in depends:
            continue
        depends[name] = parse_depends(read_module(there[name]))
        if lost := [need for need in depends[name] if need not in there and need not in inside]:
            raise InvalidArgument(f"module {name} needs {', '.join(lost)}, which is missing")
        todo += [need for need in depends[name] if need in there]
    order = load_order(wanted, depends)
    return tuple(there[name] for name in order if name in there)
