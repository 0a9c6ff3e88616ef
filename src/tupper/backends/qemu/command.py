"""QEMU's command line, in small pieces. Pure.

Everything that QEMU opens it gets as a descriptor, so the user that it runs as needs no path. The
same words start a fresh machine and one that a saved one is loaded into: QEMU wants the same
devices in the same order then.

Source: qemu(1) and docs/system/i386/microvm.rst of QEMU 7.2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tupper.backends.qemu.options import Accel

ROOT, DISK = "tupper-root", "tupper-disk"
PORT = "tupper.agent"
# The guest's only device. Each is alone with its bridge, so all may have the same address.
MAC = "02:74:75:70:70:01"
MEMORY = "ram"
# What the emulator keeps of translated code, MiB. The default is a gigabyte.
TRANSLATIONS_MIB = 64
# Under this name a guest finds the host's directories.
SHARES = "tupper-shares"

_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk of the guest.

    Args:
        name: its serial number inside, by which the guest finds it.
        descriptor: of the image; opened for writing unless ``read_only``.
        read_only: whether the guest may not write.
        is_direct: whether the host's page cache is left out.
    """

    name: str
    descriptor: int
    read_only: bool
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class Shares:
    """Directories of the host.

    Args:
        descriptor: of the one that shows all.
        read_only: whether the guest may write to none of them.
    """

    descriptor: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class Boot:
    """What the machine runs.

    Args:
        kernel, initramfs: paths that QEMU's user can open.
        parameters: of the kernel.
        machine: words that choose the kind of machine, as the kernel needs it.
    """

    kernel: str
    initramfs: str
    parameters: str
    machine: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """A machine, in terms of QEMU.

    Args:
        name: for people, and for finding its process.
        accel: what runs its instructions.
        boot: its kernel.
        memory_mib: its RAM.
        ram: path of the file in memory that is its RAM.
        cpus: processors.
        control: descriptor of a listening socket for QEMU's control.
        console: descriptor of a connected socket that the serial line leads to.
        channel: descriptor of a listening socket for the agent; None for no agent.
        drives: its disks.
        tap: descriptor or name of the network's device; None for no network.
        gives_back: whether memory that the guest has freed goes back to the host.
        shares: directories of the host; None for none.
        incoming: whether a saved machine is loaded into it.
    """

    name: str
    accel: Accel
    boot: Boot
    memory_mib: int
    ram: str
    cpus: int
    control: int
    console: int
    channel: int | None = None
    drives: tuple[Drive, ...] = ()
    tap: int | str | None = None
    gives_back: bool = True
    shares: Shares | None = None
    incoming: bool = False


def render(program: str, spec: Spec) -> list[str]:
    """The whole command line."""
    return [
        program,
        *("-name", f"{spec.name},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-sandbox", _SANDBOX),
        *machine(spec),
        *boot(spec.boot),
        *control(spec),
        *(word for number, one in enumerate(spec.drives) for word in drive(one, number)),
        *channel(spec.channel),
        *network(spec.tap),
        *memory(spec),
        *shares(spec.shares),
        *(("-incoming", "defer") if spec.incoming else ()),
    ]


def machine(spec: Spec) -> list[str]:
    """Processors and memory."""
    fast = f"tcg,tb-size={TRANSLATIONS_MIB}" if spec.accel is Accel.TCG else "kvm"
    cpu = "max" if spec.accel is Accel.TCG else "host,migratable=on"
    where = f"memory-backend-file,mem-path={spec.ram},share=on"
    return [
        *(*spec.boot.machine, "-machine", f"memory-backend={MEMORY}"),
        *("-accel", fast, "-cpu", cpu),
        *("-smp", str(spec.cpus), "-m", f"{spec.memory_mib}M"),
        *("-object", f"{where},id={MEMORY},size={spec.memory_mib}M"),
    ]


def boot(what: Boot) -> list[str]:
    """Kernel, its first file system and its parameters."""
    return [
        *("-kernel", what.kernel, "-initrd", what.initramfs),
        *("-append", what.parameters),
    ]


def control(spec: Spec) -> list[str]:
    """The ways of the host into the machine and out of it."""
    return [
        *("-chardev", f"socket,id=control,fd={spec.control},server=on,wait=off"),
        *("-mon", "chardev=control,mode=control"),
        *("-chardev", f"socket,id=console,fd={spec.console}", "-serial", "chardev:console"),
    ]


def drive(one: Drive, number: int) -> list[str]:
    """One disk.

    The guest's flushes are not passed on: a crash of the host ends sandboxes anyway, and what is
    saved is synced as a whole. What the guest writes goes past the host's page cache, for the guest
    has its own: a control group of version 1 would end a machine that writes faster than the disk.
    """
    cache = {"direct": one.is_direct, "no-flush": True}
    file: dict[str, object] = {
        "driver": "file", "node-name": f"file{number}", "filename": f"/dev/fdset/{number + 1}",
        "read-only": one.read_only, "locking": "off", "discard": "unmap", "cache": cache,
    }  # fmt: skip
    raw: dict[str, object] = {
        "driver": "raw", "node-name": f"disk{number}", "file": f"file{number}",
        "read-only": one.read_only, "discard": "unmap", "cache": cache,
    }  # fmt: skip
    return [
        *("-add-fd", f"fd={one.descriptor},set={number + 1}"),
        *("-blockdev", json.dumps(file), "-blockdev", json.dumps(raw)),
        *("-device", f"virtio-blk-device,drive=disk{number},serial={one.name}"),
    ]


def channel(descriptor: int | None) -> list[str]:
    """The line to the agent."""
    if descriptor is None:
        return []
    return [
        *("-device", "virtio-serial-device"),
        *("-chardev", f"socket,id=agent,fd={descriptor},server=on,wait=off"),
        *("-device", f"virtserialport,chardev=agent,name={PORT}"),
    ]


def network(tap: int | str | None) -> list[str]:
    """The network device."""
    if tap is None:
        return []
    where = f"fd={tap}" if isinstance(tap, int) else f"ifname={tap},script=no,downscript=no"
    return [
        *("-netdev", f"tap,id=net,{where}"),
        *("-device", f"virtio-net-device,netdev=net,mac={MAC}"),
    ]


def memory(spec: Spec) -> list[str]:
    """What tells the host of memory that the guest has freed.

    The RAM is a file that QEMU maps shared, so what is given back becomes a hole in it. Nothing is
    ever taken from a guest: nobody inflates the balloon.
    """
    if not spec.gives_back:
        return []
    return ["-device", "virtio-balloon-device,free-page-reporting=on"]


def shares(what: Shares | None) -> list[str]:
    """The host's directories.

    Owners and permissions are the files' own; inode numbers differ also across file systems.
    """
    if what is None:
        return []
    where = f"local,id=shares,path=/proc/self/fd/{what.descriptor}"
    rights = "readonly=on" if what.read_only else "readonly=off"
    return [
        *("-fsdev", f"{where},security_model=passthrough,multidevs=remap,{rights}"),
        *("-device", f"virtio-9p-device,fsdev=shares,mount_tag={SHARES}"),
    ]


def processors(cpus: float) -> int:
    """How many processors a guest gets that may use so many, perhaps not whole, cores."""
    return max(1, math.ceil(cpus))


def as_user(uid: int, argv: Sequence[str], *, gid: int = 0) -> list[str]:
    """A command line that runs as a user without a name or any privilege.

    Args:
        uid: of the user.
        argv: the command line.
        gid: a group that it is in besides its own; 0 for none.
    """
    groups = f"--groups={gid}" if gid else "--clear-groups"
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", groups),
        *("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--", *argv),
    ]
