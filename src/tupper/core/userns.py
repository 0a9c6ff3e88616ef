"""Whether an ordinary user of this host may have user namespaces and networks in them, or why not.

Several parts need the same answer: images are unpacked in a user namespace, networks live in one,
and gVisor runs in one. Each obstacle comes with the command that removes it.

Source: user_namespaces(7), subuid(5), newuidmap(1), pasta(1); Ubuntu's and Debian's switches are
described in their release notes (``kernel.apparmor_restrict_unprivileged_userns``,
``kernel.unprivileged_userns_clone``).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import TupperError
from tupper.core.process import minimal_env, run, run_sync

# Puts a program into a user namespace where it is root, with the user's subordinate ids.
AS_ROOT = ("unshare", "--user", "--map-root-user", "--map-auto", "--")
# A mount namespace too, whose mounts go with it and are seen nowhere else.
OWN_MOUNTS = ("--mount", "--propagation", "private", "--")
_TIMEOUT_S = 30.0
_REMOVE_TIMEOUT_S = 600.0
_RANGE = 65536
_FIRST = 100_000
_PROGRAMS = {
    "unshare": "util-linux", "nsenter": "util-linux", "newuidmap": "uidmap",
    "newgidmap": "uidmap", "pasta": "passt", "ip": "iproute2", "nft": "nftables",
}  # fmt: skip
_SWITCHES = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "65536"),
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way.

    Args:
        reason: for people.
        remedy: the command that an administrator runs; empty if none is known.
    """

    reason: str
    remedy: str = ""


def in_own_mounts() -> tuple[str, ...]:
    """What runs a program in a mount namespace of its own, as root; an ordinary user as mapped."""
    return ("unshare", *OWN_MOUNTS) if os.geteuid() == 0 else (*AS_ROOT[:-1], *OWN_MOUNTS)


async def find_obstacle() -> Obstacle | None:
    """Everything that keeps this user from having sandboxes' namespaces; None if nothing does.

    It is tried, not guessed: a namespace is made and thrown away.
    """
    found = [_missing_programs(), _missing_ranges(Path("/etc"))]
    if not any(found):
        found.append(await _refused_namespace())
    found.append(_closed_tun(Path("/dev/net/tun")))
    obstacles = [obstacle for obstacle in found if obstacle is not None]
    if not obstacles:
        return None
    reasons = "; ".join(obstacle.reason for obstacle in obstacles)
    remedies = " && ".join(obstacle.remedy for obstacle in obstacles if obstacle.remedy)
    return Obstacle(reasons, remedies)


def _missing_programs() -> Obstacle | None:
    path = minimal_env()["PATH"]
    missing = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if not missing:
        return None
    packages = " ".join(sorted({_PROGRAMS[name] for name in missing}))
    return Obstacle(
        f"not installed: {', '.join(missing)}",
        f"sudo apt-get install --no-install-recommends {packages}",
    )


def _missing_ranges(etc: Path) -> Obstacle | None:
    import pwd  # noqa: PLC0415 - POSIX only

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Obstacle(f"user id {uid} has no name in /etc/passwd, so it has no subordinate ids")
    texts = {file: _read(etc / file) for file in ("subuid", "subgid")}
    lacking = [file for file, text in texts.items() if not has_range(text, {name, str(uid)})]
    if not lacking:
        return None
    first = free_range("\n".join(texts.values()))
    span = f"{first}-{first + _RANGE - 1}"
    options = "".join(f" --add-{file}s {span}" for file in lacking)
    return Obstacle(
        f"{' and '.join(f'/etc/{file}' for file in lacking)} give no ids to {name}",
        f"sudo usermod{options} {name}",
    )


def has_range(text: str, names: set[str]) -> bool:
    """Whether one of these names has a range of at least 65,536 ids in a file like /etc/subuid."""
    for line in text.splitlines():
        owner, _, rest = line.partition(":")
        count = rest.partition(":")[2]
        if owner in names and count.isdigit() and int(count) >= _RANGE - 1:
            return True
    return False


def free_range(text: str) -> int:
    """The first id after all ranges in a file like /etc/subuid."""
    ends = [_FIRST]
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        start, _, count = rest.partition(":")
        if start.isdigit() and count.isdigit():
            ends.append(int(start) + int(count))
    return max(ends)


async def _refused_namespace() -> Obstacle | None:
    argv = [*AS_ROOT[:-1], "--net", "--mount", "--", "true"]
    try:
        done = await run(argv, timeout_s=_TIMEOUT_S, check=False)
    except TupperError as error:
        return Obstacle(f"user namespaces do not work for this user: {error.message}")
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip()
    for name, (closed, opened) in _SWITCHES.items():
        if _read(Path("/proc/sys", *name.split("."))).strip() == closed:
            return Obstacle(
                f"the kernel refuses user namespaces ({name} is {closed}): {said}",
                f"sudo sysctl -w {name}={opened}",
            )
    return Obstacle(f"user namespaces do not work for this user: {said}")


def _closed_tun(device: Path) -> Obstacle | None:
    if not device.exists():
        return Obstacle(f"there is no {device}", "sudo modprobe tun")
    if not os.access(device, os.R_OK | os.W_OK):
        return Obstacle(f"{device} cannot be opened by this user", f"sudo chmod 0666 {device}")
    return None


def remove_tree(path: Path) -> None:
    """Like ``shutil.rmtree``, also where parts belong to our subordinate ids. Follows no link.

    It is fine if there is nothing.

    Raises:
        OSError, ProgramFailed: something stays.
    """
    if path.is_symlink() or not path.exists():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        if os.geteuid() == 0:
            raise
        argv = [*AS_ROOT, "rm", "-rf", "--one-file-system", "--", str(path)]
        run_sync(argv, timeout_s=_REMOVE_TIMEOUT_S)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
