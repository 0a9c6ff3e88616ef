"""An ordinary user's sandboxes through the SDK; run as that user by ``test_user.py``.

Template ``minimal`` (busybox), so that nothing big must be built.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI

from background import kill_background
from tupper import CommandExitException, Sandbox
from tupper.core.paths import find_paths

_GONE_S = 20.0


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("minimal", timeout=900, memory=256, disk=256) as made:
        yield made


def out(sandbox, command, **options):
    return sandbox.commands.run(command, **options).stdout.strip()


def processes(word):
    """Processes of this machine that carry a word in their arguments or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for name in ("cmdline", "environ"):
                try:
                    if word.encode() in (entry / name).read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
    return found


def left(sandbox_id):
    paths = find_paths()
    files = [paths.data / "sandboxes" / sandbox_id, paths.runtime / "s" / f"{sandbox_id}.sock"]
    found = [str(path) for path in files if os.path.lexists(path)]
    return found + [f"process {pid}" for pid in processes(sandbox_id)]


def assert_nothing_left(sandbox_id):
    end = time.monotonic() + _GONE_S
    while remains := left(sandbox_id):
        assert time.monotonic() < end, remains
        time.sleep(0.02)


def end_of(sandbox):
    """Why it ended; waits until it has."""
    end = time.monotonic() + 60
    while sandbox.is_running():
        assert time.monotonic() < end
        time.sleep(0.1)
    argv = [sys.executable, "-m", "tupper", "logs", sandbox.sandbox_id]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


class Listener:
    """Says a word to whoever connects to a port of this host."""

    def __init__(self, address="0.0.0.0"):
        self.socket = socket.create_server((address, 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with closing(client):
                client.sendall(b"reached\n")


@pytest.fixture(scope="module")
def listener():
    listener = Listener()
    yield listener
    listener.socket.close()


def test_it_is_an_ordinary_user_who_runs_this():
    assert os.geteuid() != 0
    with open("/proc/self/status") as status:
        effective = next(line.split()[1] for line in status if line.startswith("CapEff"))
    assert int(effective, 16) == 0


def test_commands_and_root_inside(sandbox):
    assert out(sandbox, "id -u") == "1000"
    assert out(sandbox, "id -u", user="root") == "0"
    assert (
        out(sandbox, "touch /etc/x && chown 1234:77 /etc/x && stat -c %u:%g /etc/x", user="root")
        == "1234:77"
    )
    assert sandbox.commands.run("echo e >&2").stderr == "e\n"
    assert out(sandbox, "head -1 /proc/meminfo").split()[1] == str(256 * 1024)


def test_files(sandbox):
    sandbox.files.write("/home/user/a", b"\0\xff" * 100_000)
    assert sandbox.files.read("/home/user/a", format="bytes") == b"\0\xff" * 100_000
    assert out(sandbox, "stat -c %u:%s /home/user/a") == "1000:200000"
    sandbox.files.make_dir("/home/user/d")
    assert {entry.name for entry in sandbox.files.list("/home/user")} >= {"a", "d"}


def test_the_image_stays_as_it_is():
    with Sandbox.create("minimal", timeout=300, memory=256, disk=256) as spoilt:
        out(spoilt, "echo bad >/etc/passwd; rm -rf /home /bin/busybox", user="root")
    with Sandbox.create("minimal", timeout=300, memory=256, disk=256) as other:
        assert out(other, "id -un") == "user"


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "192.168.1.1", "172.17.0.1"])
def test_private_addresses_are_refused_at_once(address):
    with Sandbox.create("minimal", timeout=300, memory=256, disk=256) as guest:
        said = out(guest, f"nc -w 20 {address} 80 </dev/null 2>&1 || true")
        assert "refused" in said.lower(), said


def own_addresses():
    said = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True)
    return [a["local"] for link in json.loads(said.stdout) for a in link["addr_info"]]


def test_the_host_is_refused_but_for_allowed_ports(listener):
    other = Listener()
    options = {"timeout": 300, "memory": 256, "disk": 256, "allow_host_ports": [listener.port]}
    with closing(other.socket), Sandbox.create("minimal", **options) as guest:
        say = f"nc -w 20 host.tupper.internal {listener.port} </dev/null"
        assert out(guest, say) == "reached"
        for address in ["host.tupper.internal", *own_addresses()]:
            if not address.startswith("127."):
                said = out(guest, f"nc -w 20 {address} {other.port} </dev/null 2>&1 || true")
                assert "refused" in said.lower(), (address, said)


def test_names_are_resolved_where_the_host_resolves_them(sandbox):
    names = [PyPI.file_storage_domain, "example.com"]
    known = [name for name in names if resolves(name)]
    if not known:
        pytest.skip("this host resolves no name of the internet")
    assert "Address" in out(sandbox, f"nslookup {known[0]} | tail -n +3")


def resolves(name):
    try:
        return bool(socket.getaddrinfo(name, 443, socket.AF_INET))
    except OSError:
        return False


def test_published_ports():
    with Sandbox.create("minimal", timeout=300, memory=256, disk=256, ports=[8000]) as guest:
        out(guest, "mkdir -p /home/user/w; echo page >/home/user/w/index.html")
        guest.commands.run("busybox httpd -f -p 8000 -h /home/user/w", background=True)
        url = f"http://{guest.get_info().ports[8000]}/"
        assert eventually(lambda: urllib.request.urlopen(url, timeout=10).read()) == b"page\n"


def eventually(call):
    end = time.monotonic() + 30
    while True:
        try:
            return call()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_kill_leaves_nothing():
    guest = Sandbox.create("minimal", timeout=300, memory=256, disk=256)
    guest.commands.run("sleep 1000", background=True)
    assert left(guest.sandbox_id)
    guest.kill()
    assert_nothing_left(guest.sandbox_id)


@pytest.mark.parametrize("backend", ["gvisor", "qemu"])
def test_mounts_of_host_directories(tmp_path, backend):
    (tmp_path / "given").write_text("mine\n")
    place = [f"{tmp_path}:/data"]
    with Sandbox.create(
        "minimal", timeout=300, memory=256, disk=256, mounts=place, backend=backend
    ) as guest:
        assert out(guest, "cat /data/given; echo theirs >/data/made", user="root") == "mine"
        bits = "cd /data; for m in 4755 2755; do cp /bin/busybox $m; chmod $m $m; done; true"
        out(guest, bits, user="root")
    assert [oct(p.stat().st_mode & 0o6000) for p in tmp_path.iterdir()] == ["0o0"] * 4
    assert (tmp_path / "made").read_text() == "theirs\n"
    assert (tmp_path / "made").stat().st_uid == os.getuid()


def test_sandboxes_outlive_the_background_process():
    guest = Sandbox.create("minimal", timeout=300, memory=256, disk=256)
    guest.files.write("/home/user/kept", "kept")
    kill_background()
    again = Sandbox.connect(guest.sandbox_id)
    assert again.files.read("/home/user/kept") == "kept"
    assert out(again, "echo alive") == "alive"
    again.kill()
    assert_nothing_left(guest.sandbox_id)


def test_a_process_that_takes_too_much_memory_is_ended():
    guest = Sandbox.create("minimal", timeout=300, memory=128, disk=256)
    with pytest.raises(CommandExitException) as caught:
        guest.commands.run("dd if=/dev/zero of=/dev/null bs=110M count=100000")
    assert caught.value.limit == "memory"
    assert out(guest, "echo alive") == "alive"
    guest.kill()
    assert_nothing_left(guest.sandbox_id)


def test_one_that_takes_too_much_memory_is_ended():
    guest = Sandbox.create("minimal", timeout=300, memory=96, disk=256)
    # Files in memory belong to no process, and many small processes have no largest one: so the
    # agent finds nobody to end, and only the host is left to do it.
    fill = "for f in /dev/x /dev/shm/x; do dd if=/dev/zero of=$f bs=1M count=64; done"
    crowd = "for i in $(seq 40); do dd if=/dev/zero of=/dev/null bs=4M count=1000000 & done; wait"
    guest.commands.run(f"{fill}; {crowd}", background=True, user="root")
    assert "out_of_memory: the sandbox used all of its 96 MiB" in end_of(guest)
    assert_nothing_left(guest.sandbox_id)


def test_one_that_writes_too_much_is_ended():
    guest = Sandbox.create("minimal", timeout=300, memory=256, disk=64)
    guest.commands.run("dd if=/dev/zero of=/home/user/x bs=1M count=200; sleep 60", background=True)
    assert "out_of_disk: the sandbox used all of its 64 MiB" in end_of(guest)
    assert_nothing_left(guest.sandbox_id)


def test_a_guest_cannot_fill_the_host_through_the_shared_directory(sandbox):
    said = out(sandbox, "dd if=/dev/zero of=/run/tupper/x bs=1M count=8 2>&1 || true", user="root")
    assert "No space left" in said


def test_pause_resume_and_fork():
    with Sandbox.create("minimal", timeout=300, memory=256, disk=256) as sandbox:
        sandbox.files.write("f", "kept")
        pid = sandbox.commands.run("sleep 6000", background=True, timeout=0).pid
        assert sandbox.pause()
        assert not sandbox.is_running()
        sandbox.connect(timeout=300)
        (fork,) = sandbox.fork(timeout=300)
        assert isinstance(fork, Sandbox)
        for each in (sandbox, fork):
            assert each.files.read("f") == "kept"
            assert pid in [found.pid for found in each.commands.list()]
        fork.kill()
