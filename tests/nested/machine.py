"""The outer machine: a processor with SVM that is emulated, in which ``/dev/kvm`` works.

Its clock counts instructions, one nanosecond each, and only when it idles does time pass as it does
outside (``-icount``). So a host that is busy makes it slow, and nothing inside notices: limits of
time mean the same on every host, and durations are the same in every run.

Source: QEMU 7.2, docs/devel/tcg-icount.rst, docs/system/i386/microvm.rst; qemu(1), ``-fsdev``.
"""

import os
import resource
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

from nested.image import INSIDE, links, shares
from nested.watch import Watch

_MEMORY_MIB = 3072
_TRANSLATIONS_MIB = 512


class StoodStill(Exception):
    """The emulator went round without executing anything."""


def command_line(image, seen, monitor):
    """The words that start it.

    Args:
        image: what boots.
        seen: directories of the host.
        monitor: a socket for questions.
    """
    parameters = ["console=ttyS0", "quiet", "loglevel=1", "panic=-1"]
    parameters += [f"nested.link={name},{target}" for name, target in links()]
    parameters += [f"nested.share={one.tag},{one.target},{one.how}" for one in seen]
    return [
        *("qemu-system-x86_64", "-name", "nested", "-nodefaults", "-no-user-config"),
        *("-machine", "q35,hpet=off", "-accel", f"tcg,thread=single,tb-size={_TRANSLATIONS_MIB}"),
        *("-icount", "shift=0,sleep=on", "-cpu", "EPYC,+svm,+npt"),
        *("-smp", "1", "-m", f"{_MEMORY_MIB}M", "-display", "none", "-no-reboot"),
        *("-monitor", f"unix:{monitor},server=on,wait=off"),
        *("-serial", "stdio", "-kernel", str(image.kernel), "-initrd", str(image.first)),
        *("-append", " ".join(parameters)),
        *(word for one in seen for word in _share(one)),
    ]


def _share(one):
    where = f"local,id={one.tag},path={one.source},security_model=none,multidevs=remap"
    read_only = "" if one.how == "rw" else ",readonly=on"
    device = f"virtio-9p-pci,fsdev={one.tag},mount_tag={one.tag}"
    return ["-fsdev", where + read_only, "-device", device]


def run(image, results, script, *, timeout_s):
    """Boot, run a script as root, end; what it said.

    Args:
        image: what boots.
        results: a directory for what the script leaves in ``INSIDE / "results"``.
        script: for ``/bin/sh``.
        timeout_s: for all of it, by the host's clock.

    Raises:
        StoodStill: so it did, and was ended.
    """
    (results / "job").write_text(script)
    argv = command_line(image, shares(image, results), results / "monitor")
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with (results / "qemu").open("wb") as errors:
        machine = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PATH": os.environ["PATH"]},
            text=True,
            errors="replace",
        )
    limit = threading.Timer(timeout_s, machine.kill)
    limit.start()
    watch = Watch(machine, results / "monitor")
    said = []
    try:
        for line in machine.stdout:
            said.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
        machine.wait()
    finally:
        limit.cancel()
        watch.end()
        machine.kill()
        machine.wait()
        machine.stdout.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"nested: {time.monotonic() - began:.0f} s here, {processor_s:.0f} s of a processor")
    if watch.stood_still:
        raise StoodStill
    return "".join(said)


def pytest_script(arguments):
    """The script that runs tests inside and leaves their results as ``junit.xml``."""
    tests = Path(__file__).parent / "inside"
    argv = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-c",
            tests / "pytest.ini",
            "--rootdir",
            tests.parents[1],
        ),
        *("--junitxml", INSIDE / "results" / "junit.xml", *arguments),
    ]
    return f"""
export PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH={shlex.quote(str(tests.parents[1]))}
cd {shlex.quote(str(tests.parents[2]))}
exec {shlex.join(map(str, argv))}
"""
