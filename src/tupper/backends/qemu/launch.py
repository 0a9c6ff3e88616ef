"""Starting QEMU and the relay: everything opened by us, given away as descriptors.

Both run in sessions of their own and are nobody's children, so they outlive us. Where we are root
they run as a user id that this machine alone has, that owns one directory and may open nothing
else: what they need is opened before. Paths that they get are ``/proc/self/fd/N``, which leads past
our private directories.

Source: proc(5), ``/proc/PID/fd`` ("symbolic links … the permission is that of the file itself");
setsid(1), setpriv(1), nsenter(1).
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.qemu import command, kvm, sharing, tap
from tupper.backends.qemu.handover import Handover, give
from tupper.backends.qemu.layout import (
    AGENT_NAME,
    CHANNEL_NAME,
    CONSOLE_NAME,
    CONTROL_NAME,
    Layout,
)
from tupper.backends.qemu.options import Accel
from tupper.core import kernel
from tupper.core.backend import Attachment, Mount
from tupper.core.cgroup import Cgroup
from tupper.core.errors import MachineFailed
from tupper.core.liveness import start_ticks
from tupper.core.paths import make_private
from tupper.core.process import minimal_env, run_sync
from tupper.core.restraint import restrain
from tupper.core.userns import AS_ROOT

MARK = "TUPPER_MACHINE"
_TIMEOUT_S = 15.0
_FIRST_UID, _UIDS = 0x70000000, 1 << 24
_ENTER = ("nsenter", "--preserve-credentials", "-U", "-n")
# Tells its process id, which stays the same, and then becomes the program.
_BECOME = 'echo $$; log=$1; shift; exec "$@" >>"$log" 2>&1'


@dataclass(frozen=True, slots=True)
class Image:
    """A disk image.

    Args:
        name: the guest finds it by.
        path: of the file.
        read_only: whether the guest may not write.
    """

    name: str
    path: Path
    read_only: bool


@dataclass(frozen=True, slots=True)
class Guest:
    """What runs in a machine.

    Args:
        kernel, initramfs: files.
        parameters: of the kernel.
        machine: QEMU's words for the kind of machine.
    """

    kernel: Path
    initramfs: Path
    parameters: str
    machine: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One start.

    Args:
        host_name: marks its processes.
        layout: its files.
        program: QEMU.
        accel: what runs the guest's instructions.
        guest: its kernel.
        memory_mib, cpus: its size.
        images: its disks.
        attachment: its network; None for none.
        mounts: directories of the host.
        ram: descriptor of the file in memory that is its RAM.
        has_agent: whether there is a line for an agent.
        gives_back: whether memory that the guest has freed goes back to the host.
        incoming: whether a saved machine is loaded.
        cgroup: to run in; None where there is none.
    """

    host_name: str
    layout: Layout
    program: Path
    accel: Accel
    guest: Guest
    memory_mib: int
    cpus: int
    ram: int
    images: tuple[Image, ...] = ()
    attachment: Attachment | None = None
    mounts: tuple[Mount, ...] = ()
    has_agent: bool = True
    gives_back: bool = True
    incoming: bool = False
    cgroup: Cgroup | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A QEMU that was started.

    Args:
        pid, ticks: of its process; no ticks if it ended at once, which its console tells too.
        console: our end of the guest's serial line.
    """

    pid: int
    ticks: int
    console: socket.socket


def uid_of(host_name: str) -> int | None:
    """The user id that a machine of this name runs as; None where we cannot give it one."""
    if os.geteuid() != 0:
        return None
    number = int.from_bytes(hashlib.sha256(host_name.encode()).digest()[:3])
    return _FIRST_UID + number % _UIDS


def make_directories(layout: Layout, uid: int | None) -> None:
    """The machine's directories, one of them QEMU's."""
    make_private(layout.base)
    layout.run.mkdir(mode=0o700)
    give(layout.run, uid)


def launch(what: Launch) -> Running:
    """Start QEMU. Blocks, and changes the calling thread's namespace: for a thread of its own.

    Raises:
        OSError: something could not be opened.
        ProgramFailed: the network could not be connected.
        Unsupported, NotFound: a directory cannot be shown.
        MachineFailed: QEMU was not even started.
    """
    uid = uid_of(what.host_name)
    ours, theirs = socket.socketpair()
    try:
        with Handover() as handed:
            console = handed.take(theirs.detach())
            gid = kvm.group_of(kvm.DEVICE.stat()) if what.accel is Accel.KVM else 0
            shared = _share(what, handed, uid, gid)
            spec = _spec(what, handed, uid, console, shared)
            argv = command.render(str(what.program), spec)
            if shared is None:
                argv = as_own_user(uid, argv, gid=gid)
            else:
                argv = [*shared.prefix, *argv]
                if uid is not None:
                    restrain("qemu", has_groups=False)
            pid = spawn(
                [*_entering(what), *argv],
                host_name=what.host_name,
                log=what.layout.output,
                pass_fds=[*handed.numbers, what.ram],
                cgroup=what.cgroup,
            )
        ours.setblocking(False)
        return Running(pid, start_ticks(pid) or 0, ours)
    except BaseException:
        ours.close()
        raise


def _share(what: Launch, handed: Handover, uid: int | None, gid: int) -> sharing.Shared | None:
    if not what.mounts:
        return None
    shared = sharing.share(what.mounts, what.layout.shares, uid, gid=gid)
    for number in (shared.place, *shared.numbers):
        handed.take(number)
    return shared


def _spec(
    what: Launch,
    handed: Handover,
    uid: int | None,
    console: int,
    shared: sharing.Shared | None,
) -> command.Spec:
    guest, layout = what.guest, what.layout
    drives: list[command.Drive] = []
    for image in what.images:
        number, is_direct = _open_image(image, handed)
        drives.append(command.Drive(image.name, number, image.read_only, is_direct))
    channel = handed.listen(layout.run, CHANNEL_NAME, uid) if what.has_agent else None
    first = handed.path(guest.initramfs)
    boot = command.Boot(handed.path(guest.kernel), first, guest.parameters, guest.machine)
    return command.Spec(
        name=what.host_name,
        accel=what.accel,
        boot=boot,
        memory_mib=what.memory_mib,
        cpus=what.cpus,
        control=handed.listen(layout.base, CONTROL_NAME, None),
        console=console,
        channel=channel,
        drives=tuple(drives),
        tap=_attach(what.attachment, handed),
        ram=f"/proc/self/fd/{what.ram}",
        gives_back=what.gives_back,
        shares=_shares(what, shared),
        incoming=what.incoming,
    )


def _shares(what: Launch, shared: sharing.Shared | None) -> command.Shares | None:
    if shared is None:
        return None
    return command.Shares(shared.place, all(mount.read_only for mount in what.mounts))


def _open_image(image: Image, handed: Handover) -> tuple[int, bool]:
    """The descriptor of an image, and whether it leads past the page cache."""
    if image.read_only:
        return handed.open(image.path), False
    try:
        return handed.open(image.path, os.O_RDWR | os.O_DIRECT), True
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot do it, such as tmpfs
            raise
        return handed.open(image.path, os.O_RDWR), False


def _attach(attachment: Attachment | None, handed: Handover) -> int | str | None:
    """Connect the network; what QEMU is told of it."""
    if attachment is None:
        return None
    if attachment.holder_pid:
        tap.connect(attachment, prefix=_namespaces_of(attachment), make=True)
        return tap.NAME
    kernel.enter(Path("/run/netns") / attachment.netns, kernel.CLONE_NEWNET)
    number = handed.take(tap.open_tap())
    tap.connect(attachment)
    return number


def detach(attachment: Attachment) -> None:
    """Disconnect the network of a QEMU that is gone, so that another one can have it.

    Blocks, and changes the calling thread's namespace: for a thread of its own.

    Raises:
        OSError: the network's namespace is gone.
    """
    if attachment.holder_pid:
        tap.disconnect(prefix=_namespaces_of(attachment))
        return
    kernel.enter(Path("/run/netns") / attachment.netns, kernel.CLONE_NEWNET)
    tap.disconnect()


def _entering(what: Launch) -> tuple[str, ...]:
    """What leads QEMU into an ordinary user's namespaces."""
    if what.attachment is not None and what.attachment.holder_pid:
        return _namespaces_of(what.attachment)
    return AS_ROOT if what.mounts and os.geteuid() != 0 else ()


def _namespaces_of(attachment: Attachment) -> tuple[str, ...]:
    return (*_ENTER, "-t", str(attachment.holder_pid), "--")


def as_own_user(uid: int | None, argv: Sequence[str], *, gid: int = 0) -> list[str]:
    """The command line, as the machine's own user where it has one, in one group or none (0)."""
    return list(argv) if uid is None else command.as_user(uid, argv, gid=gid)


def spawn(
    argv: Sequence[str],
    *,
    host_name: str,
    log: Path,
    pass_fds: Sequence[int],
    cgroup: Cgroup | None,
) -> int:
    """Start a program that outlives us; its process id.

    Args:
        argv: what becomes of the process in the end.
        host_name: of the machine that it belongs to.
        log: gets what it says.
        pass_fds: that it inherits.
        cgroup: that it runs in.
    """
    log.touch(mode=0o600)
    detached = ["setsid", "--fork", "/bin/sh", "-c", _BECOME, "sh", str(log), *argv]
    # One heap for all threads: each further one keeps megabytes that nobody uses.
    env = minimal_env(**{MARK: host_name, "MALLOC_ARENA_MAX": "1"})
    with ExitStack() as stack:
        if cgroup is not None:
            inside = stack.enter_context(cgroup.holding_thread())
            detached = cgroup.joining(detached, inside=inside)
        done = run_sync(detached, timeout_s=_TIMEOUT_S, env=env, pass_fds=pass_fds)
    try:
        return int(done.text)
    except ValueError as error:
        raise MachineFailed(f"{Path(argv[0]).name} was not started: {done.text}") from error


@dataclass(frozen=True, slots=True)
class Relay:
    """The program on the host that leads to the agent.

    Args:
        agent_binary: of which it is a part.
        settings: what the guest is told when it boots; empty for one that has booted.
        news: what a guest is told that goes on after a restore; empty for nothing.
    """

    agent_binary: Path
    settings: bytes = b""
    news: bytes = b""


def start_relay(
    what: Relay, layout: Layout, console: int, *, host_name: str, cgroup: Cgroup | None
) -> tuple[int, int]:
    """Start the relay; process id and start time. Blocks.

    Args:
        what, layout: what it needs.
        console: descriptor of our end of the serial line.
        host_name, cgroup: of the machine.

    Raises:
        MachineFailed: it ended at once.
    """
    uid = uid_of(host_name)
    with Handover() as handed:
        run = handed.path(layout.run, os.O_PATH | os.O_DIRECTORY)
        argv = [handed.path(what.agent_binary), "relay"]
        argv += ["--channel", f"{run}/{CHANNEL_NAME}", "--listen", f"{run}/{AGENT_NAME}"]
        argv += ["--console", str(console), "--console-log", f"{run}/{CONSOLE_NAME}"]
        for option, file, text in (
            ("--settings", layout.settings, what.settings),
            ("--wake", layout.news, what.news),
        ):
            if text:
                _write_private(file, text, uid)
                argv += [option, handed.path(file)]
        pid = spawn(
            as_own_user(uid, argv),
            host_name=host_name,
            log=layout.relay_output,
            pass_fds=[*handed.numbers, console],
            cgroup=cgroup,
        )
    ticks = start_ticks(pid)
    if ticks is None:
        raise MachineFailed("the relay ended at once")
    return pid, ticks


def _write_private(path: Path, text: bytes, uid: int | None) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(text)
    give(path, uid)
