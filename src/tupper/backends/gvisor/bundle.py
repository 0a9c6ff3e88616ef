"""From a machine's plan to what runsc reads: the OCI configuration and the command line. Pure.

Source: OCI runtime specification 1.0.2; ``runsc flags`` of release 20240729.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tupper.backends.gvisor.options import Platform
from tupper.core.backend import MachinePlan, Mount

AGENT_PATH = "/.tupper/agent"
SHARED_PATH = "/run/tupper"
SOCKET_NAME = "agent.sock"
_OPEN_FILES = 65536

# What root inside needs to install packages, make users and bind low ports. All of it acts inside
# the sandbox only. Without NET_RAW and SYS_ADMIN. SYS_RESOURCE is for the agent, which limits the
# processes of its children and takes the capability out of their bounding set.
CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL"),
    *("CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP"),
    *("CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one machine, all below ``plan.directory / "machine"``.

    Args:
        base: the directory itself.
    """

    base: Path

    @property
    def bundle(self) -> Path:
        """Holds ``config.json``."""
        return self.base / "bundle"

    @property
    def state(self) -> Path:
        """Runsc's own state, for this machine alone."""
        return self.base / "state"

    @property
    def skeleton(self) -> Path:
        """The layer over the root filesystem."""
        return self.base / "skeleton"

    @property
    def lower(self) -> Path:
        """Where the root filesystem is shown (in the machine's mount namespace only)."""
        return self.base / "lower"

    @property
    def root(self) -> Path:
        """Where skeleton and root filesystem are one (likewise)."""
        return self.base / "root"

    @property
    def disk(self) -> Path:
        """Where the disk image is mounted (likewise)."""
        return self.base / "disk"

    @property
    def run(self) -> Path:
        """A tmpfs of 1 MiB, on the host too: sockets and last words."""
        return self.base / "run"

    @property
    def shared(self) -> Path:
        """The part of ``run`` that the guest sees."""
        return self.run / "guest"

    @property
    def output(self) -> Path:
        """Standard output and error of runsc and of the agent."""
        return self.run / "output"

    @property
    def release(self) -> Path:
        """What tells a held agent to go on. The guest may put anything in its place."""
        return self.shared / "release"

    @property
    def reboot(self) -> Path:
        """The same, and what runs inside is ended before."""
        return self.shared / "reboot"

    @property
    def panic(self) -> Path:
        """The last words of gVisor itself."""
        return self.run / "panic"

    @property
    def meminfo(self) -> Path:
        """What runsc shall take for ``/proc/meminfo``."""
        return self.base / "meminfo"

    @property
    def read_only(self) -> Path:
        """Where directories lie that the guest may only read (in its mount namespace only)."""
        return self.base / "read-only"

    @property
    def holder(self) -> Path:
        """An ordinary user's: pid and start time of the process that holds the namespaces."""
        return self.base / "holder"

    def directories(self) -> tuple[Path, ...]:
        """All that must exist before anything is mounted."""
        return (self.bundle, self.state, self.skeleton, self.lower, self.root, self.disk, self.run)


def render_config(
    plan: MachinePlan, layout: Layout, *, sudo: Sequence[str], etc: Mapping[str, Path]
) -> str:
    """The text of ``config.json``.

    Args:
        plan: the machine.
        layout: its files.
        sudo: guest paths where the agent stands in for ``sudo``.
        etc: guest path → host file to mount there (only where there is no skeleton).
    """
    root = plan.rootfs.path if plan.disk_image is None else layout.root
    network: dict[str, object] = {"type": "network"}
    if plan.attachment is not None:
        network["path"] = "/proc/self/ns/net"  # runsc is started inside it
    config: dict[str, object] = {
        "ociVersion": "1.0.2",
        "process": _process(plan),
        "root": {"path": str(root), "readonly": False},
        "hostname": plan.hostname,
        "mounts": [
            *_system_mounts(plan),
            _bind(layout.shared, SHARED_PATH, read_only=False),
            *(_bind(plan.agent_binary, place, read_only=True) for place in (AGENT_PATH, *sudo)),
            *(_bind(path, place, read_only=False) for place, path in etc.items()),
            *(
                _bind(source, mount.guest_path, read_only=mount.read_only)
                for mount, source in sources(plan, layout)
            ),
        ],
        "linux": {
            "namespaces": [*({"type": t} for t in ("pid", "ipc", "uts", "mount")), network],
        },
    }
    return json.dumps(config)


def _process(plan: MachinePlan) -> dict[str, object]:
    listen = f"unix:{SHARED_PATH}/{SOCKET_NAME}"
    agent = json.dumps({**plan.agent_config, "listen": listen})
    sets = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": [AGENT_PATH, "serve"],
        "cwd": "/",
        "env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root",
            # For the start of its runtime, before it can decide by itself: each thread that is
            # not begun saves a millisecond of processor.
            "GOMAXPROCS=1",
            f"TUPPER_AGENT_CONFIG={agent}",
        ],
        "capabilities": {name: list(CAPABILITIES) for name in sets},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": _OPEN_FILES, "soft": _OPEN_FILES}],
        "noNewPrivileges": False,
    }


def _system_mounts(plan: MachinePlan) -> list[dict[str, object]]:
    shm = f"size={max(16, plan.memory_mib // 2)}m"
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
        {
            "destination": "/dev/shm",  # noqa: S108 (a path in the guest)
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "nodev", "mode=1777", shm],
        },
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
    ]


def sources(plan: MachinePlan, layout: Layout) -> Iterator[tuple[Mount, Path]]:
    """The host's directories, each with the place where gVisor takes it from."""
    for number, mount in enumerate(plan.mounts):
        yield mount, layout.read_only / str(number) if mount.read_only else mount.host_path


def _bind(source: Path, destination: str, *, read_only: bool) -> dict[str, object]:
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", "ro" if read_only else "rw"],
    }


def adapt_mounts(config: str, saved: str) -> str:
    """The configuration for a restore: the mounts of the saved machine, with our own sources.

    gVisor wants the same mounts in the same order. So those that were saved count, also if this
    version would make others by now.

    Args:
        config: the text of ours.
        saved: the text of the saved machine's.

    Raises:
        ValueError: the saved machine has a mount that we have nothing for.
    """
    ours = json.loads(config)
    sources = {mount["destination"]: mount for mount in ours["mounts"]}
    wanted = [mount["destination"] for mount in json.loads(saved)["mounts"]]
    if missing := [place for place in wanted if place not in sources]:
        raise ValueError(f"nothing is there to be seen at {', '.join(missing)}")
    ours["mounts"] = [sources[place] for place in wanted]
    return json.dumps(ours)


def render_command(
    runsc: Path, platform: Platform, plan: MachinePlan, layout: Layout, *, image: Path | None = None
) -> list[str]:
    """The command line that starts the machine and returns when it runs.

    Args:
        runsc, platform, plan, layout: what to start.
        image: where the saved machine is that goes on; None for a fresh one.
    """
    overlay = "none" if plan.disk_image is None else f"root:dir={layout.disk}"
    return [
        str(runsc),
        f"--root={layout.state}",
        f"--platform={platform}",
        f"--network={'none' if plan.attachment is None else 'sandbox'}",
        "--host-uds=create",
        f"--overlay2={overlay}",
        "--net-disconnect-ok",  # without it an open connection makes a snapshot impossible
        "--ignore-cgroups",  # ours, see tupper.core.cgroup
        f"--panic-log={layout.panic}",
        "run" if image is None else "restore",
        "--detach",
        *([] if image is None else [f"--image-path={image}"]),
        f"--bundle={layout.bundle}",
        plan.sandbox_id,
    ]


def render_meminfo(memory_mib: int) -> str:
    """As much of ``/proc/meminfo`` as runsc reads: the memory that the guest will see."""
    return f"MemTotal: {memory_mib * 1024} kB\n"
