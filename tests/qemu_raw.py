"""A guest and its relay, started by hand: what is tested is the guest, not how the backend runs it."""

import contextlib
import fcntl
import http.client
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tupper.backends.qemu import clock, guest, initramfs, kernel, supply
from tupper.core.paths import find_paths

PATIENCE_S = 120
_AGENTS = Path(kernel.__file__).parents[2] / "guest" / "bin"
AGENT = _AGENTS / f"tupper-agent-linux-{'arm64' if platform.machine() == 'aarch64' else 'amd64'}"


class Choice:
    """The backend's options: a minimal kernel if somebody has built one, else the stock one."""

    kernel = modules = ""


async def prepare_kernel():
    """The backend's directory in the user's cache, and a kernel in it; fetched once."""
    cache = find_paths({k: v for k, v in os.environ.items() if k != "TUPPER_HOME"}).cache
    home = cache / "tests" / "qemu"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return home, await supply.obtain(home, Choice(), progress=print)


def make_root(top):
    """An image of a root filesystem with nothing but busybox."""
    tree = top / "root"
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr/bin", "usr/local/bin"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    for name in ("sh", "cat", "id", "mount", "df", "ls", "ip", "hostname", "sleep", "su", "stat"):
        (tree / "bin" / name).symlink_to("busybox")
    (tree / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    (tree / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\n")
    (tree / "tmp").chmod(0o1777)
    return tree


class Guest:
    """QEMU and a relay, for a ``with`` block.

    Args:
        place: an empty directory for its files, with a short path.
        home, of: the backend's directory, and the kernel.
        root: image of the root filesystem; None for no such disk.
        settings: what the guest is told, over the usual ones; None for a relay that tells nothing.
        parameters: more of the kernel's.
        network: whether it has a network device.
        share: a directory that shows it the host's directories; None for none.
    """

    def __init__(
        self, place, home, of, root, settings=(), *, parameters="", network=False, share=None
    ):
        self.place, self.root, self.settings = place, root, settings
        self.kernel, self.first = of, initramfs.build(home, of, AGENT)
        khz = clock.tsc_khz(home, AGENT)
        self.parameters = f"{guest.command_line(emulated=True, tsc_khz=khz)} {parameters}"
        self.network, self.share, self.relay = network, share, None
        self.socket, self.console = place / "a", place / "console"

    def __enter__(self):
        self.place.mkdir(mode=0o700)
        self._make_disk()
        self.qemu = subprocess.Popen(self._argv(), stdin=subprocess.DEVNULL)
        try:
            if self.settings is not None:
                self.start_relay()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in (self.qemu, self.relay):
            if process is not None:
                process.kill()
                process.wait()

    def _make_disk(self):
        with (self.place / "disk").open("wb") as file:
            file.truncate(64 << 20)
        argv = ["mkfs.ext4", "-q", "-F", str(self.place / "disk")]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    def _argv(self):
        argv = [f"qemu-system-{platform.machine()}", *guest.machine_arguments(self.kernel)]
        argv += ["-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults", "-no-user-config"]
        argv += ["-no-reboot", "-display", "none", "-serial", f"file:{self.console}"]
        argv += ["-kernel", str(self.kernel.path), "-initrd", str(self.first)]
        argv += ["-append", self.parameters, "-device", "virtio-serial-device"]
        argv += ["-chardev", f"socket,id=c,path={self.place}/c,server=on,wait=off"]
        argv += ["-device", "virtserialport,chardev=c,name=tupper.agent"]
        for name, path in (("disk", self.place / "disk"), ("root", self.root)):
            if path is not None:
                only = "on" if name == "root" else "off"
                argv += ["-drive", f"if=none,id={name},format=raw,read-only={only},file={path}"]
                argv += ["-device", f"virtio-blk-device,drive={name},serial=tupper-{name}"]
        if self.network:
            argv += ["-netdev", "user,id=n,restrict=on", "-device", "virtio-net-device,netdev=n"]
        if self.share is not None:
            argv += ["-fsdev", f"local,id=s,path={self.share},security_model=none"]
            argv += ["-device", "virtio-9p-device,fsdev=s,mount_tag=tupper-shares"]
        return argv

    def start_relay(self):
        """Start it, and wait until it listens."""
        told = self.place / "settings.json"
        settings = {"agent": {"accessToken": "secret", "hostname": "inside"}}
        told.write_text(json.dumps(settings | dict(self.settings)))
        argv = [str(AGENT), "relay", "--channel", f"{self.place}/c", "--listen", str(self.socket)]
        argv += ["--settings", str(told)]
        self.relay = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        self.until(self.socket.exists, "the relay does not listen")

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}; the guest said: {self.said()[-2000:]}"
            time.sleep(0.01)

    def said(self):
        """What came over the serial line."""
        with contextlib.suppress(FileNotFoundError):
            return self.console.read_text(errors="replace")
        return ""

    def end(self):
        """Wait for the end; the guest's last words."""
        assert self.qemu.wait(PATIENCE_S) == 0
        return re.findall(r"^tupper: (.*?)\r?$", self.said(), re.MULTILINE)[-1]

    def ask(self, method, path, body=None, token="secret"):
        """Status and text of an answer."""
        client = http.client.HTTPConnection("a", timeout=PATIENCE_S)
        client.sock = socket.socket(socket.AF_UNIX)
        client.sock.settimeout(PATIENCE_S)
        client.sock.connect(str(self.socket))
        with contextlib.closing(client):
            kind = {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(len(body or b"")),
            }
            client.request(method, path, body, {"X-Access-Token": token, **kind})
            answer = client.getresponse()
            return answer.status, answer.read()

    def read(self, path):
        status, text = self.ask("GET", f"/files?username=root&path={path}")
        assert status == 200, text
        return text.decode()

    def read_short(self, path):
        """A file of /sys, which says that it is longer than it is."""
        try:
            return self.read(path).strip()
        except http.client.IncompleteRead as error:
            return error.partial.decode().strip()

    def write(self, path, data):
        status, text = self.ask("POST", f"/files?username=root&path={path}", data)
        assert status == 200, text
