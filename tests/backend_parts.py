"""What tests of backends need: a root filesystem, an agent, a disk, a plan."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tupper.core.backend import ImageConfig, MachinePlan, Rootfs

HOSTS = {"/etc/hosts": "127.0.0.1 localhost box\n", "/etc/resolv.conf": "nameserver 192.0.2.1\n"}


@functools.cache
def agent_binary():
    """The agent: the one in the package, or built now."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    top = Path(__file__).parent.parent
    built = top / "src" / "tupper" / "guest" / "bin" / f"tupper-agent-linux-{machine}"
    if not built.exists():
        pytest.skip("the agent is not built: run python tools/build_agent.py")
    return built


def host_root(directory):
    """A small root filesystem from the host's own programs."""
    from tupper.backends.gvisor.trial import PROGRAMS, build_tree

    build_tree(directory, (*PROGRAMS, "dd", "head", "mv", "rm", "tail", "touch", "uname"))
    for name in ("etc", "run", "root", "usr/local/bin", "usr/bin"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (directory / "tmp").chmod(0o1777)
    return directory


def empty_disk(path, mib=256):
    """A sparse file with an empty ext4."""
    with path.open("wb") as file:
        file.truncate(mib << 20)
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", str(path)],
        check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    return path


def make_plan(directory, sandbox_id, root, **changes):
    values = {
        "sandbox_id": sandbox_id,
        "host_name": f"t-{sandbox_id}",
        "directory": directory,
        "rootfs": Rootfs("sha256:0", root, ImageConfig()),
        "disk_image": empty_disk(directory / "disk.img"),
        "disk_mib": 256,
        "attachment": None,
        "mounts": (),
        "cpus": 1.0,
        "memory_mib": 256,
        "pids": 256,
        "hostname": "box",
        "agent_binary": agent_binary(),
        "agent_config": {"sandboxId": sandbox_id, "accessToken": "secret", "init": True},
        "etc_files": HOSTS,
    }
    return MachinePlan(**{**values, **changes})


def shared_data_dir():
    """Where a fetched runsc and the probe's results stay during a run."""
    from tupper.core.paths import find_paths

    return find_paths().data


def temporary(prefix):
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
