"""What lies on the host before a machine starts: its directories, small files and configuration.

For root this happens in the engine; for an ordinary user in a child inside the user namespace
(see :mod:`tupper.backends.gvisor.inside`), because only there do the image's owners exist.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tupper.backends.gvisor.bundle import (
    AGENT_PATH,
    SHARED_PATH,
    Layout,
    adapt_mounts,
    render_command,
    render_config,
    render_meminfo,
    sources,
)
from tupper.backends.gvisor.launch import Launch
from tupper.backends.gvisor.options import Platform
from tupper.backends.gvisor.skeleton import build_skeleton, sudo_places
from tupper.core import kernel
from tupper.core.backend import MachinePlan
from tupper.core.paths import make_private

_START_TIMEOUT_S = 30.0
# In a saved machine's directory, beside gVisor's own files.
SKELETON = "skeleton"
CONFIG = "config.json"
_RUN_OPTIONS = "size=1m,nr_inodes=256,mode=0700"


def make_directories(layout: Layout) -> None:
    """The machine's own directories, private."""
    make_private(layout.base)
    for directory in layout.directories():
        directory.mkdir(mode=0o700)


def prepare(
    plan: MachinePlan,
    layout: Layout,
    runsc: Path,
    platform: Platform,
    *,
    image: Path | None = None,
) -> Launch:
    """Fill the directories, and say how to launch.

    Args:
        plan, layout, runsc, platform: what to start.
        image: where a saved machine is that goes on (see :mod:`tupper.backends.gvisor.saving`).

    Raises:
        InvalidArgument: a path that cannot be had in this image.
        OSError: the small file system could not be mounted.
    """
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tupper", layout.run, "tmpfs", flags=flags, data=_RUN_OPTIONS)
    layout.shared.mkdir(mode=0o755)
    layout.meminfo.write_text(render_meminfo(plan.memory_mib))
    build = plan.disk_image is None
    sudo = [] if build else sudo_places(plan.rootfs.path)
    etc = _files_beside(layout, plan.etc_files) if build else {}
    if image is not None:
        # gVisor looks whether its files are still those that it knew, by size and time.
        copy_tree(image / SKELETON, layout.skeleton)
        (layout.reboot if plan.cold else layout.release).touch()
    elif not build:
        _lay_skeleton(plan, layout, sudo)
    config = render_config(plan, layout, sudo=sudo, etc=etc)
    if image is not None:
        config = adapt_mounts(config, (image / CONFIG).read_text())
    path = layout.bundle / "config.json"
    path.touch(mode=0o600)
    path.write_text(config)
    return Launch(
        argv=render_command(runsc, platform, plan, layout, image=image),
        layout=layout,
        lower=None if build else plan.rootfs.path,
        netns=Path("/run/netns") / plan.attachment.netns if plan.attachment else None,
        timeout_s=_START_TIMEOUT_S,
        platform=platform,
        read_only=[
            (mount.host_path, place) for mount, place in sources(plan, layout) if mount.read_only
        ],
        is_restrained=any(not mount.read_only for mount in plan.mounts),
        layer=plan.layer,
    )


def copy_tree(source: Path, target: Path) -> None:
    """Copy a skeleton with modes, times and owners; the target exists. No link is followed."""
    for path in [source, *sorted(source.rglob("*"))]:
        made = target / path.relative_to(source)
        if path.is_dir() and not path.is_symlink():
            made.mkdir(exist_ok=True)
        else:
            shutil.copy2(path, made, follow_symlinks=False)
    # Times last, the deepest first: filling a directory changes its own.
    for path in sorted([source, *source.rglob("*")], reverse=True):
        status, made = path.lstat(), target / path.relative_to(source)
        os.chown(made, status.st_uid, status.st_gid, follow_symlinks=False)
        if not path.is_symlink():
            shutil.copystat(path, made)


def _lay_skeleton(plan: MachinePlan, layout: Layout, sudo: list[str]) -> None:
    files: dict[str, str | None] = dict(plan.etc_files)
    files |= dict.fromkeys((AGENT_PATH, *sudo))
    build_skeleton(
        layout.skeleton,
        plan.rootfs.path,
        # runsc puts a file system of its own, in memory, on an empty /tmp.
        directories=[
            *("/proc", "/dev", "/sys", "/tmp/.X11-unix", SHARED_PATH),  # noqa: S108
            *(mount.guest_path for mount in plan.mounts),
        ],
        files=files,
    )


def _files_beside(layout: Layout, etc_files: Mapping[str, str]) -> dict[str, Path]:
    """Files that are mounted one by one, on the small tmpfs so that the guest cannot grow them."""
    out: dict[str, Path] = {}
    for number, (place, text) in enumerate(etc_files.items()):
        out[place] = layout.run / f"etc-{number}"
        out[place].write_text(text)
        out[place].chmod(0o644)
    return out
