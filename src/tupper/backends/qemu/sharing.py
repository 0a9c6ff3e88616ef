"""Directories of the host for a guest: one place that shows them all, and who QEMU is there.

The place is a small file system that hangs nowhere and goes with QEMU. Below it lie copies of the
directories' mounts. On these, the host's kernel refuses set-user-ID programs, devices, running
anything, following a symbolic link and, where that is wanted, writing, so none of it depends on
what QEMU does or on who has taken it over.

What a guest's root does there it is to do as root, so that owners are the same inside and outside.
QEMU is not root for it. It has its own user id as always, in a user namespace where that id is
root's, and the directories are shown with owners as this namespace maps them (an id-mapped mount).
So it has root's rights for these directories, and an unknown user's for all the rest of the host.

For an ordinary user QEMU is in the user namespace of the sandbox's network, where the user is root
and owns also what their subordinate ids own; the user's own rights are all that is to be had.

Source: mount_setattr(2); user_namespaces(7), "Interaction of system calls that change process UIDs
or GIDs"; capabilities(7).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tupper.core import kernel
from tupper.core.backend import Mount
from tupper.core.errors import MachineFailed, NotFound, TupperError, Unsupported
from tupper.core.process import become, minimal_env, same_code, spawn_detached

_RIGHTS = (
    kernel.MOUNT_ATTR_NOSUID
    | kernel.MOUNT_ATTR_NODEV
    | kernel.MOUNT_ATTR_NOEXEC
    | kernel.MOUNT_ATTR_NOSYMFOLLOW
)
_SIZE = "size=64k,nr_inodes=1k,mode=0755"
# Owners below this number are shown. Above, no number is left for each, and it is nobody's.
_OWNERS = 0x70000000
# Where the numbers of others than root begin in QEMU's user namespace; no user of a host is there.
_OTHERS = 0x80000000
# QEMU's group: nogroup. A program that gets the right of its group has none then.
_GROUP = 65534
_CAPABILITIES = "-all,+chown,+dac_override,+fowner"
_NAMESPACE_S = 10.0
_POLL_S = 0.001
_MAIN = "from tupper.backends.qemu.sharing import main; main()"


@dataclass(frozen=True, slots=True)
class Shared:
    """What QEMU is started with.

    Args:
        place: descriptor of the directory that shows all.
        numbers: further descriptors that it inherits.
        prefix: of its command line.
    """

    place: int
    numbers: tuple[int, ...]
    prefix: tuple[str, ...]


def share(mounts: Sequence[Mount], base: Path, uid: int | None, *, gid: int = 0) -> Shared:
    """Prepare directories. Blocks; changes nothing that outlives the descriptors.

    Args:
        mounts: the directories.
        base: a private directory of the machine.
        uid: the user that QEMU runs as; None where that is us.
        gid: a group of the host that it needs for a device of its own; 0 for none.

    Raises:
        Unsupported: a file system that cannot show other owners.
        NotFound: a directory is gone, or a link leads to it by now.
    """
    base.mkdir(mode=0o700)
    if uid is None:
        return _later(mounts, base, gid)
    namespace = make_namespace(uid)
    try:
        place = export(mounts, base, namespace)
    except BaseException:
        os.close(namespace)
        raise
    # A group has no number inside, so it is had before; it owns nothing that the mounts show.
    groups = f"--groups={gid}" if gid else "--clear-groups"
    before = ("setpriv", groups, "--")
    enter = ("nsenter", "--preserve-credentials", f"--user=/proc/self/fd/{namespace}", "-S", "0")
    drop = ("setpriv", f"--regid={_GROUP}", "--keep-groups", "--no-new-privs", "--inh-caps=-all")
    limit = f"--bounding-set={_CAPABILITIES}"
    return Shared(place, (namespace,), (*before, *enter, "--", *drop, limit, "--"))


def _later(mounts: Sequence[Mount], base: Path, gid: int) -> Shared:
    """An ordinary user may mount only inside the namespaces that QEMU is started in."""
    for mount in mounts:
        os.close(_open(mount))  # what is wrong there is told better here
    place = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    job = {
        "place": place,
        "base": str(base),
        "has_groups": bool(gid),
        "mounts": [[str(m.host_path), m.read_only] for m in mounts],
    }
    # The user's own groups can only be kept all, or none.
    groups = "--keep-groups" if gid else "--clear-groups"
    drop = ("setpriv", f"--regid={_GROUP}", groups, "--inh-caps=-all")
    limit = f"--bounding-set={_CAPABILITIES},+net_admin"  # it opens its TAP by name
    environment = ("env", *(f"{name}={value}" for name, value in same_code().items()))
    child = (*environment, sys.executable, "-P", "-c", _MAIN, json.dumps(job))
    return Shared(place, (), (*child, *drop, limit, "--no-new-privs", "--"))


def main() -> None:
    """Make the place in the namespaces that we are in, and become the program of the arguments.

    **Shape**: the first argument is a JSON object: ``place``, the descriptor that the place is to
    have; ``base``, a directory; ``has_groups``, whether the user's groups are kept; ``mounts``, a
    list of a path and whether it is read-only.
    """
    from tupper.core.restraint import restrain  # noqa: PLC0415 - of the child alone

    job, argv = json.loads(sys.argv[1]), sys.argv[2:]
    mounts = [Mount(Path(path), "/", read_only=read_only) for path, read_only in job["mounts"]]
    try:
        os.dup2(export(mounts, Path(job["base"]), None), job["place"])
    except TupperError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"the mounts cannot be made: {error.strerror}")
    for name in same_code():
        del os.environ[name]
    restrain("qemu", has_groups=job["has_groups"])
    become(argv)


def export(mounts: Sequence[Mount], base: Path, namespace: int | None) -> int:
    """A descriptor of a directory that shows the directories, named 0, 1 and so on.

    The calling thread leaves its mount namespace for it, and returns.

    Args:
        mounts: the directories.
        base: an empty directory, which stays empty.
        namespace: descriptor of the user namespace by which owners are shown; None for as they are.

    Raises:
        Unsupported, NotFound: see :func:`share`.
    """
    home = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
        try:
            # Only here may an ordinary user copy mounts.
            kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
            return _gather(mounts, base, namespace)
        finally:
            if namespace is not None:
                kernel.enter(Path(f"/proc/self/fd/{home}"), kernel.CLONE_NEWNS)
    finally:
        os.close(home)


def _gather(mounts: Sequence[Mount], base: Path, namespace: int | None) -> int:
    with ExitStack() as stack:
        trees = [_tree(mount, namespace, stack) for mount in mounts]
        kernel.mount("tupper", base, "tmpfs", data=_SIZE)
        for number, tree in enumerate(trees):
            (base / str(number)).mkdir()
            kernel.move_tree(tree, base / str(number))
    kernel.mount("none", base, flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY)
    top = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return kernel.clone_tree(top)
    finally:
        os.close(top)


def _tree(mount: Mount, namespace: int | None, stack: ExitStack) -> int:
    rights = _RIGHTS | (kernel.MOUNT_ATTR_RDONLY if mount.read_only else 0)
    directory = _open(mount)
    try:
        tree = kernel.clone_tree(directory)
    finally:
        os.close(directory)
    stack.callback(os.close, tree)
    try:
        kernel.restrict_tree(tree, rights, user_namespace=namespace)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
            raise _unsupported(mount) from error
        raise
    return tree


def _open(mount: Mount) -> int:
    try:
        return kernel.open_directory(mount.host_path)
    except OSError as error:
        raise NotFound(f"the host directory of the mount {mount.guest_path} is gone") from error


def _unsupported(mount: Mount) -> Unsupported:
    why = (
        f"what is mounted at or below the host directory of {mount.guest_path} includes a file "
        "system that cannot show other owners (an id-mapped mount), or the kernel cannot"
    )
    return Unsupported("qemu", "this mount", why)


def make_namespace(uid: int) -> int:
    """A descriptor of a user namespace in which a user is root, and every other owner has a place.

    Raises:
        MachineFailed: there is none in time.
    """
    keeper = spawn_detached(["unshare", "--user", "--", "sleep", "infinity"], env=minimal_env())
    try:
        path = Path(f"/proc/{keeper.pid}")
        ours = Path("/proc/self/ns/user").stat().st_ino
        deadline = time.monotonic() + _NAMESPACE_S
        while (path / "ns/user").stat().st_ino == ours:  # nothing tells
            if keeper.poll() is not None or time.monotonic() > deadline:
                raise MachineFailed("there is no user namespace for the mounts")
            time.sleep(_POLL_S)
        for name in ("uid_map", "gid_map"):
            (path / name).write_text(f"0 {uid} 1\n1 {_OTHERS + 1} {_OWNERS - 1}\n")
        return os.open(path / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MachineFailed(f"there is no user namespace for the mounts: {error}") from error
    finally:
        keeper.kill()
        keeper.wait()
