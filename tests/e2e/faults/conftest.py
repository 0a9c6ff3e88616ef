"""Background processes of their own, with homes that hold the run's images."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from integration.engine.host import Host
from tupper.core.paths import find_paths


def furnish(home: Path) -> Path:
    """A home with the programs and the small template of this run's home."""
    ours = find_paths().data
    home.mkdir(mode=0o700, exist_ok=True)
    for part in ("backends/gvisor", "images/refs"):
        if (ours / part).exists():
            shutil.copytree(ours / part, home / part, symlinks=True)
    for root in (ours / "images" / "roots").glob("*"):
        if not (root / "rootfs/usr/bin/gcc").exists():
            (home / "images/roots").mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", root, home / "images/roots"], check=True)
    return home


@pytest.fixture
def new_host():
    """Start background processes with homes of their own."""
    hosts = []

    def make(name):
        home = find_paths().data / name
        host = Host(furnish(home))
        host.start()
        hosts.append(host)
        return host

    yield make
    for host in hosts:
        if host.process.poll() is not None:
            host.start()
        with host.client() as http:
            for sandbox in http.get("/v2/sandboxes").json():
                http.delete(f"/sandboxes/{sandbox['sandboxID']}")
        host.process.terminate()
        host.process.wait(30)
        assert host.leftovers() == []
        shutil.rmtree(host.paths.data, ignore_errors=True)
        shutil.rmtree(host.paths.runtime, ignore_errors=True)


@pytest.fixture
def small_disk():
    """A directory that is a file system of 160 MiB."""
    place = Path(os.environ["TUPPER_HOME"]) / "full"
    place.mkdir()
    options = ["-o", "size=160m,mode=0700"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tupper-test", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)
    place.rmdir()
