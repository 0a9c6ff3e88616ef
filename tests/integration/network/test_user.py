"""Networks of an ordinary user, run as one inside the lab.

The host's /etc/subuid and /dev/net/tun are replaced only in a mount namespace of the test.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from integration.network.lab import HOST, METADATA, PRIVATE, PUBLIC, RESOLVER, call_in

UID = 54321
REFUSED = "Connection refused"
PYTHON = "/usr/bin/python3"
_PROGRAMS = ("pasta", "newuidmap", "nsenter", "unshare", "setpriv", "mknod")


def _reason():
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    if missing:
        return f"not installed: {missing}"
    done = subprocess.run(
        [PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False
    )
    return f"{PYTHON} is older than 3.11" if done.returncode else ""


pytestmark = pytest.mark.skipif(bool(_reason()), reason=_reason() or "-")

# A user and the ranges, in files of a mount namespace; then the driver as that user.
SETUP = """
set -e
d=$1; shift
mount --make-rprivate /
mkdir $d/etc
(cat /etc/passwd; echo "tupperuser:x:%(uid)d:%(uid)d::/tmp:/bin/sh") > $d/etc/passwd
(cat /etc/group; echo "tupperuser:x:%(uid)d:") > $d/etc/group
echo "tupperuser:4000000:65536" > $d/etc/subuid
cp $d/etc/subuid $d/etc/subgid
for f in passwd group subuid subgid; do mount --bind $d/etc/$f /etc/$f; done
mount -t tmpfs tmpfs $d/etc
mknod $d/etc/tun c 10 200; chmod 666 $d/etc/tun
%(tun)s
exec setpriv --reuid %(uid)d --regid %(uid)d --clear-groups --inh-caps=-all "$@"
"""


class Driver:
    def __init__(self, lab, place, *, tun=True):
        source = place / "source"  # the user may not be able to read the checkout
        root = Path(__file__).parents[3]
        shutil.copytree(root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(Path(__file__).parent / "user_driver.py", source)
        data, work = place / "data", place / "work"
        data.mkdir(mode=0o700)
        work.mkdir()
        os.chown(data, UID, UID)
        bind = "mount --bind $d/etc/tun /dev/net/tun" if tun else "true"
        script = SETUP % {"uid": UID, "tun": bind}
        command = ["unshare", "-m", "sh", "-c", script, "sh", str(work), PYTHON]
        command += [str(source / "user_driver.py"), str(data), RESOLVER]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "HOME": "/tmp"}
        self.process = call_in(
            lab.host,
            lambda: subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd="/"
            ),
        )

    def __call__(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the driver ended"
        return json.loads(line)

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def place():
    """A directory that the user can reach; pytest keeps its own to root alone."""
    with tempfile.TemporaryDirectory(prefix="tupper-user-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def driver(lab, place):
    driver = Driver(lab, place)
    reason = driver("probe")
    if reason is not None:
        driver.close()
        pytest.skip(reason)
    try:
        yield driver
        driver("sweep", "[]")
    finally:
        driver.close()


def test_an_ordinary_user_has_the_internet_and_nothing_else(lab, driver):
    lab.serve(lab.internet, "0.0.0.0", 80, b"internet\n")
    lab.serve(lab.host, "0.0.0.0", 9998, b"host\n")
    lab.resolver(lab.internet, RESOLVER, PUBLIC)
    guest = driver("attach")
    assert guest.get("holder_pid"), guest
    assert driver("try", PUBLIC, "80") == "internet"
    assert driver("resolve", guest["gateway"]) == PUBLIC
    for address in (METADATA, PRIVATE, RESOLVER):
        assert driver("try", address, "80") == REFUSED, address
    for address in (HOST, guest["gateway"], "127.0.0.1", "192.0.2.10"):
        assert driver("try", address, "9998") == REFUSED, address
    assert driver("update", '{"internet": false}') is None
    assert driver("try", PUBLIC, "80") == REFUSED
    assert driver("resolve", guest["gateway"]) == REFUSED
    assert driver("detach") is None
    assert driver("detach") is None
    assert driver("left") == []


def test_a_guest_that_speaks_first_is_answered(lab, driver):
    """pasta of 2023-03 acknowledges by segments without flags, which once reset the connection."""
    server = lab.serve(lab.internet, "0.0.0.0", 80, b"internet\n")
    server.hears_first = True
    assert driver("attach").get("holder_pid")
    assert driver("try", PUBLIC, "80", "question") == "internet"


def test_TB045_one_port_of_the_host_for_an_ordinary_user(lab, driver):
    lab.serve(lab.host, "127.0.0.1", 9999, b"loopback\n")
    lab.serve(lab.host, "0.0.0.0", 9998, b"host\n")
    guest = driver("attach", '{"allow_host_ports": [9999]}')
    assert guest.get("holder_pid"), guest
    assert driver("try", guest["gateway"], "9999") == "loopback"
    assert driver("try", guest["gateway"], "9998") == REFUSED
    assert driver("try", HOST, "9998") == REFUSED
    assert driver("update", '{"allow_host_ports": [9999, 1]}')["error"] == "Unsupported"


def test_sweep_ends_the_processes_of_the_dead(lab, driver):
    lab.serve(lab.internet, PUBLIC, 80)
    guest = driver("attach")
    assert len(driver("left")) == 3
    assert driver("sweep", json.dumps([guest["data"]["sandbox"]])) == []
    assert driver("try", PUBLIC, "80") == "hello"
    assert driver("sweep", "[]") == [guest["data"]["sandbox"]]
    assert driver("left") == []


def test_a_failed_attach_leaves_no_process(driver):
    assert driver("fail") == {"error": "NetworkError", "message": "3 processes"}
    assert driver("left") == []
    assert driver("attach").get("holder_pid")


def test_the_reason_why_there_is_none_is_exact(lab, place):
    driver = Driver(lab, place, tun=False)
    try:
        reason = driver("probe")
        if os.stat("/dev/net/tun").st_mode & 0o006 == 0o006:
            assert reason is None
        else:
            assert "/dev/net/tun" in reason
            assert driver("attach")["error"] == "NetworkError"
            assert driver("left") == []
    finally:
        driver.close()
