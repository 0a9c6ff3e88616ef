"""Starting runsc in namespaces of its own, without a helper program.

Linux keeps the mount and network namespace per *thread*. So a thread of ours leaves the host's
mount namespace, mounts what this machine alone needs, enters the machine's network namespace,
starts runsc, and ends. The mounts belong to the namespace, and that lives as long as runsc's
processes: when they die, by whatever cause, the disk image is unmounted and its loop device is
free, also when nobody is left to clean up.

Source: unshare(2) and setns(2) ("the calling thread"), loop(4) (autoclear), overlayfs.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.gvisor.barrier import skip_registration
from tupper.backends.gvisor.bundle import Layout
from tupper.backends.gvisor.options import Platform
from tupper.core import kernel, overlay
from tupper.core.backend import Layer
from tupper.core.process import minimal_env, run_sync
from tupper.core.restraint import restrain

# Not NOEXEC: gVisor maps the guest's programs from the file that holds its writes, so with it every
# program and library that the guest itself writes would die of SIGSEGV.
_DISK_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOATIME
# The image returns to the host what the guest deletes; a crash of the host ends sandboxes anyway.
_DISK_OPTIONS = "discard,barrier=0"
# Whiteouts and redirects that an image smuggles in must not point elsewhere.
_OVERLAY_OPTIONS = "lowerdir=skeleton:lower,redirect_dir=nofollow,metacopy=off"


@dataclass(frozen=True, slots=True)
class Launch:
    """What one start needs.

    Args:
        argv: runsc's command line.
        layout: the machine's files.
        lower: the root filesystem below the skeleton; None where the guest writes into it.
        netns: the file of the network namespace to enter; None for the host's.
        timeout_s: until runsc is ended.
        platform: that runsc uses.
        read_only: directories of the host that the guest may only read, with the place where the
            guest's kernel finds them.
        is_restrained: the guest may write to others, but leave no program there that takes its
            owner's or group's rights.
        layer: what to stack so that the guest writes into it; None where there is nothing to.
    """

    argv: Sequence[str]
    layout: Layout
    lower: Path | None
    netns: Path | None
    timeout_s: float
    platform: Platform
    read_only: Sequence[tuple[Path, Path]] = ()
    is_restrained: bool = False
    layer: Layer | None = None


def launch(what: Launch, disk: Callable[[], Path] | None) -> None:
    """Start a machine as root and return when runsc says that it runs.

    Changes the namespaces and the filter of the calling thread: only for
    :func:`tupper.core.kernel.in_thread`.

    Args:
        what: to start.
        disk: waits for the device to mount at ``layout.disk``; None for no disk of its own.

    Raises:
        ProgramFailed: runsc refused.
        DeadlineExceeded: it did not say anything in time.
        OSError: a mount failed.
        Unsupported: a directory to write to, on a processor whose system calls are not known.
    """
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    if what.netns is not None:
        kernel.enter(what.netns, kernel.CLONE_NEWNET)
        hide_network_sysctls()
    _mount_root(what, read_only=True)
    if disk is not None:
        kernel.mount(disk(), what.layout.disk, "ext4", flags=_DISK_FLAGS, data=_DISK_OPTIONS)
    _run(what)


def launch_inside(what: Launch) -> None:
    """Start a machine in the namespaces that we are in, which are this machine's alone.

    What the guest writes goes to a plain directory: a user namespace has no loop devices.
    Raises what :func:`launch` raises.
    """
    hide_network_sysctls()
    # A bind's flags cannot be changed here, where it inherits locked ones; nobody writes to it.
    _mount_root(what, read_only=False)
    _run(what)


def _mount_root(what: Launch, *, read_only: bool) -> None:
    """Show the guest's memory size to runsc, and skeleton and root filesystem as one."""
    layout = what.layout
    protect(what.read_only)
    kernel.bind(layout.meminfo, "/proc/meminfo")
    if what.lower is not None:
        kernel.bind(what.lower, layout.lower, read_only=read_only)
        os.chdir(layout.base)  # this thread's alone; short names need no escaping
        kernel.mount("overlay", "root", "overlay", flags=kernel.MS_RDONLY, data=_OVERLAY_OPTIONS)
    if what.layer is not None:
        overlay.keep_tmp(overlay.stack(what.layer.place, what.layer.below))


def protect(directories: Sequence[tuple[Path, Path]]) -> None:
    """Show directories where the host's kernel refuses changes, in the namespace that we are in.

    Release 20240729 refuses to open a file of a read-only mount with ``O_TRUNC``, and empties it.

    Raises:
        OSError: a directory is gone.
    """
    for path, place in directories:
        directory = kernel.open_directory(path)
        try:
            tree = kernel.clone_tree(directory)
        finally:
            os.close(directory)
        try:
            kernel.restrict_tree(tree, kernel.MOUNT_ATTR_RDONLY)
            place.mkdir(parents=True)
            kernel.move_tree(tree, place)
        finally:
            os.close(tree)


def hide_network_sysctls() -> None:
    """Make runsc believe that it is not in the host's network namespace.

    It refuses its own network stack where it finds ``rmem_default``, which was once to be seen in
    the host's namespace only; newer kernels show it in every one.
    """
    kernel.mount("none", "/proc/sys/net/core", "tmpfs")


def _run(what: Launch) -> None:
    if what.platform is not Platform.KVM:
        skip_registration()
    if what.is_restrained:
        restrain("gvisor", has_groups=True)
    # Appending, because runsc writes at its own offset and the guest can write here too.
    with what.layout.output.open("ab") as output:
        run_sync(what.argv, timeout_s=what.timeout_s, env=minimal_env(), output=output)
