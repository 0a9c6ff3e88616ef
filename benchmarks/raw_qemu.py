"""The reference: QEMU by hand, with the program, kernel and processor that the backend chose.

One kind boots the kernel to our first file system's ``/init``, which says who it is; no disk, no
network, no agent. The other is loaded from the whole state of a sandbox of ours, memory included,
as ``migrate`` writes it and ``-incoming`` reads it, until the agent in it answers.
"""

import asyncio
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tupper import Sandbox
from tupper.backends.qemu.artifacts import Artifacts, find_artifacts, probe_guest
from tupper.backends.qemu.options import Accel, parse_options
from tupper.backends.qemu.probing import Prober
from tupper.cli import _host
from tupper.core.paths import find_paths

MEMORY_MIB = 512
_TIMEOUT_S = 120.0
_PAUSE_S = 0.001
_SAYS_WHO = b"tupper: probe "


@dataclass(frozen=True)
class Qemu:
    """What the backend uses."""

    program: Path
    accel: Accel
    artifacts: Artifacts
    mechanism: str

    def boot(self) -> None:
        """Boot the kernel until its ``/init`` says who it is."""
        guest = probe_guest(self.artifacts, self.accel)
        process = subprocess.Popen(
            [
                *(str(self.program), *guest.machine, "-accel", str(self.accel)),
                *("-cpu", "max" if self.accel is Accel.TCG else "host", "-m", str(MEMORY_MIB)),
                *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
                *("-serial", "stdio", "-kernel", str(guest.kernel)),
                *("-initrd", str(guest.initramfs), "-append", guest.parameters),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        with process:
            try:
                said = iter(process.stdout or ())
                if not any(_SAYS_WHO in line for line in said):
                    raise RuntimeError("the kernel did not come up")
            finally:
                process.kill()


def find_qemu() -> Qemu | str:
    """What the backend uses, or why it can use nothing."""
    context = _host.context_for("qemu")
    options = parse_options(context.settings, settings=True)
    home = context.data_dir / "backends" / "qemu"
    found = asyncio.run(Prober(home, options, find_artifacts).find())
    if found.program is None or found.accel is None or found.artifacts is None:
        return found.probe.reason
    return Qemu(found.program.path, found.accel, found.artifacts, found.probe.mechanism)


def forget_warm() -> None:
    """Throw away what machines start from, so that the next one boots."""
    for directory in (find_paths().data / "backends" / "qemu" / "warm").glob("*"):
        shutil.rmtree(directory, ignore_errors=True)


def machine_directory(sbx: Sandbox) -> Path:
    """Where the files of a sandbox's machine are."""
    return find_paths().data / "sandboxes" / sbx.sandbox_id / "machine"


def machine_pids(sbx: Sandbox) -> list[int]:
    """QEMU and the relay of a sandbox: the processes that carry its mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes():
                marks = (entry / "environ").read_bytes().split(b"\0")
                if any(
                    m.startswith(b"TUPPER_MACHINE=") and m.endswith(sbx.sandbox_id.encode())
                    for m in marks
                ):
                    found.append(int(entry.name))
    return found


class Loaded:
    """The state of a sandbox of ours, and machines that are loaded from it by hand.

    Args:
        sbx: runs, and goes on.
        place: an empty directory with a short path.
    """

    def __init__(self, sbx: Sandbox, place: Path) -> None:
        self._place = place
        pids = machine_pids(sbx)
        self._argv = next(a for a in map(_arguments, pids) if "-machine" in a)
        self._pid = next(p for p in pids if _arguments(p) == self._argv)
        self._agent = next(Path(f"/proc/{p}/exe") for p in pids if "relay" in _arguments(p))
        self._root = self._image(".squashfs")
        self._count = 0
        with _Control(machine_directory(sbx) / "qmp.sock") as control:
            self._save(control)

    def _save(self, control: "_Control") -> None:
        """Write down all of it, as ``migrate`` does; the disk is copied while it stands still."""
        shutil.copyfile(self._agent, self._place / "agent")
        (self._place / "agent").chmod(0o700)
        with (self._place / "state").open("wb") as file:
            control.ask("getfd", {"fdname": "raw"}, descriptor=file.fileno())
        ignore = {"capability": "x-ignore-shared", "state": False}
        control.ask("migrate-set-capabilities", {"capabilities": [ignore]})
        control.ask("migrate-set-parameters", {"max-bandwidth": 1 << 40})
        control.ask("migrate", {"uri": "fd:raw"})
        control.until("query-migrate", "completed")
        control.until("query-status", "postmigrate")
        try:
            copy = [
                "cp",
                "--sparse=always",
                "--reflink=auto",
                str(self._image("disk.img")),
                str(self._place / "disk"),
            ]
            subprocess.run(copy, check=True, timeout=_TIMEOUT_S)
        finally:
            control.ask("cont")

    def _image(self, name: str) -> Path:
        """The file of a disk; QEMU has it open by a number of its own."""
        links = (entry.readlink() for entry in Path(f"/proc/{self._pid}/fd").iterdir())
        return next(path for path in links if path.name.endswith(name))

    def load(self) -> None:
        """Start QEMU with the state, until the agent in it answers; then end it."""
        self._count += 1
        place = self._place / str(self._count)
        place.mkdir()
        subprocess.run(
            ["cp", "--sparse=always", str(self._place / "disk"), str(place / "disk")], check=True
        )
        started = time.perf_counter()
        with contextlib.ExitStack() as ends:
            state = ends.enter_context((self._place / "state").open("rb")).fileno()
            argv = [*("unshare", "--net", "--"), *self._by_hand(place), "-incoming", f"fd:{state}"]
            _start(ends, argv, pass_fds=[state])
            listen, channel = place / "a", place / "c"
            argv = [
                str(self._place / "agent"),
                "relay",
                "--channel",
                str(channel),
                "--listen",
                str(listen),
            ]
            _start(ends, argv)
            _answers(listen)
            self.took_s = time.perf_counter() - started
        shutil.rmtree(place)

    def _by_hand(self, place: Path) -> list[str]:
        """The sandbox's own command line, with files and sockets of ours."""
        words = [self._word(word, place) for word in self._argv]
        for option in ("-add-fd", "-sandbox", "-incoming"):
            while option in words:
                at = words.index(option)
                del words[at : at + 2]
        return words

    def _word(self, word: str, place: Path) -> str:
        if word.startswith("memory-backend-file"):
            return f"memory-backend-ram,id=ram,size={MEMORY_MIB}M"
        if word.startswith("tap,id=net"):
            return "tap,id=net,script=no,downscript=no"
        if word.startswith("socket,id=console"):
            return "null,id=console"
        if word.startswith("socket,id="):
            kind = {"control": "q", "agent": "c"}[word.split(",")[1].removeprefix("id=")]
            return f"socket,{word.split(',')[1]},path={place}/{kind},server=on,wait=off"
        if word.startswith("{") and '"filename"' in word:
            block = json.loads(word)
            shared = self._root if block["read-only"] else place / "disk"
            block["filename"] = str(shared)
            return json.dumps(block)
        return re.sub(r"/proc/self/fd/(\d+)", lambda m: str(_path_of(self._pid, m[1])), word)


class _Control:
    """QEMU's own control, for a ``with`` block; it speaks to one client at a time."""

    def __init__(self, path: Path) -> None:
        self._directory = os.open(path.parent, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.connect(f"/proc/self/fd/{self._directory}/{path.name}")
        self._lines = self._socket.makefile("r")
        self._lines.readline()
        self.ask("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        os.close(self._directory)

    def ask(
        self, command: str, arguments: object = None, *, descriptor: int | None = None
    ) -> object:
        line = json.dumps({"execute": command} | ({"arguments": arguments} if arguments else {}))
        if descriptor is None:
            self._socket.sendall(line.encode())
        else:
            socket.send_fds(self._socket, [line.encode()], [descriptor])
        for said in self._lines:
            answer = json.loads(said)
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise RuntimeError(f"{command}: QEMU ended")

    def until(self, question: str, status: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while (answer := self.ask(question)) and answer.get("status") != status:
            if answer.get("status") == "failed" or time.monotonic() > deadline:
                raise RuntimeError(f"{question}: {answer}")
            time.sleep(_PAUSE_S)


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("guest")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))


def _answers(path: Path) -> None:
    """Wait until the agent behind a relay's socket answers."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        connection = _Unix(path)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 204:
                return
        except (FileNotFoundError, ConnectionError, http.client.HTTPException):
            if time.monotonic() > deadline:
                raise
        finally:
            connection.close()
        time.sleep(_PAUSE_S)


def _start(
    ends: contextlib.ExitStack, argv: list[str], pass_fds: tuple[int, ...] | list[int] = ()
) -> None:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=pass_fds)
    ends.callback(process.wait, _TIMEOUT_S)
    ends.callback(process.kill)


def _arguments(pid: int) -> list[str]:
    return [os.fsdecode(w) for w in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]


def _path_of(pid: int, number: str) -> Path:
    return Path(f"/proc/{pid}/fd/{number}").readlink()


@contextlib.contextmanager
def loaded(sbx: Sandbox) -> Iterator[Loaded]:
    """A :class:`Loaded`; its files are gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))
    try:
        yield Loaded(sbx, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
