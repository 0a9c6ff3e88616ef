"""An engine whose machines are doubles; store, ports, deadlines, proxy and sockets are real."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tupper.core.backend import (
    AgentAddress,
    Attachment,
    Backend,
    Capability,
    ImageConfig,
    Isolation,
    Machine,
    MachineRecord,
    Probe,
    Rootfs,
)
from tupper.core.errors import (
    BackendUnavailable,
    ImageNotFound,
    MachineFailed,
    TemplateNotFound,
    Unavailable,
)
from tupper.core.lifecycle import EndReason, ExitReason
from tupper.core.liveness import is_alive, kill_and_wait, start_ticks, wait_end
from tupper.core.paths import Paths
from tupper.engine.assembly import policy_of
from tupper.engine.parts import Parts
from tupper.images import Pruned
from tupper.network.policy import check_policy

from .agent_double import AgentDouble

PROBE = Probe(
    "double",
    usable=True,
    isolation=Isolation.USER_KERNEL,
    mechanism="a double",
    kernel="none",
    capabilities=frozenset({Capability.MOUNTS, Capability.NETWORK}),
)


class InProcessMachine(Machine):
    def __init__(self, record, double, server) -> None:
        self.record = record
        self.double = double
        self.server = server
        self.over = asyncio.get_running_loop().create_future()
        self.stops = 0
        self.refuses = 0

    async def wait(self):
        return await asyncio.shield(self.over)

    def die(self, reason=EndReason.MACHINE_DIED, words="") -> None:
        if not self.over.done():
            self.over.set_result(ExitReason(reason, "died", words))

    async def stop(self, *, grace_s) -> None:
        self.stops += 1
        if self.refuses:
            self.refuses -= 1
            raise MachineFailed("process 1 does not end")
        if self.server is not None:
            self.server.close()
        Path(self.record.agent.path).unlink(missing_ok=True)
        self.die(EndReason.KILLED)


@dataclass
class InProcess(Backend):
    """Machines that are servers in this process."""

    name = "double"
    machines: dict = field(default_factory=dict)
    plans: dict = field(default_factory=dict)
    fault: str = ""
    hold: asyncio.Event | None = None

    async def probe(self):
        return PROBE

    async def start(self, plan):
        self.plans[plan.sandbox_id] = plan
        if self.hold is not None:
            await self.hold.wait()
        if self.fault == "start":
            raise MachineFailed("the kernel did not start: no such device")
        shared = plan.directory / "m"
        shared.mkdir()
        path = shared / "a.sock"
        double = AgentDouble(plan.agent_config["accessToken"])
        server = None
        if self.fault == "silent":
            double.silent.clear()
        if self.fault != "mute":
            server = await asyncio.start_unix_server(double.serve, str(path))
        record = MachineRecord(
            "double", plan.sandbox_id, os.getpid(), 1, AgentAddress("unix", str(path))
        )
        machine = InProcessMachine(record, double, server)
        self.machines[plan.sandbox_id] = machine
        if self.fault == "dies":
            machine.die(EndReason.AGENT_DIED, "panic: no memory")
        return machine

    async def adopt(self, record):
        machine = self.machines.get(record.sandbox_id)
        if machine is None:
            machine = InProcessMachine(record, None, None)
            machine.die()
        return machine


class ProcessMachine(Machine):
    def __init__(self, record) -> None:
        self.record = record

    async def wait(self):
        await wait_end(self.record.pid, self.record.start_ticks)
        return ExitReason(EndReason.MACHINE_DIED, "the process ended", "last words")

    async def stop(self, *, grace_s) -> None:
        if self.record.pid and not await kill_and_wait(self.record.pid, self.record.start_ticks):
            raise MachineFailed("would not die")


class InProcesses(Backend):
    """Machines that are processes, which outlive the engine."""

    name = "double"

    async def probe(self):
        return PROBE

    async def start(self, plan):
        shared = plan.directory / "m"
        shared.mkdir()
        path = shared / "a.sock"
        script = str(Path(__file__).with_name("agent_double.py"))
        process = subprocess.Popen(
            [sys.executable, "-I", script, str(path), str(plan.agent_config["accessToken"])],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        process.returncode = 0  # never reaped by us: it is not our child in any way that matters
        ticks = start_ticks(process.pid)
        return ProcessMachine(
            MachineRecord(
                "double", plan.sandbox_id, process.pid, ticks or 0, AgentAddress("unix", str(path))
            )
        )

    async def adopt(self, record):
        return ProcessMachine(record)


class Client:
    def __init__(self, address, token) -> None:
        self.address, self.token = address, token

    async def ask(self, method, path, body=None):
        reader, writer = await asyncio.open_unix_connection(self.address.path)
        text = b"" if body is None else json.dumps(body).encode()
        writer.write(
            f"{method} {path} HTTP/1.1\r\nX-Access-Token: {self.token}\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        try:
            answer = await reader.read()
        finally:
            writer.close()
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 204")):
            raise Unavailable(f"the agent answered {head[:40]!r}")
        return rest

    async def health(self):
        await self.ask("GET", "/health")

    async def init(self, *, ca_bundle):
        await self.ask("POST", "/init", {"caBundle": ca_bundle})

    async def status(self):
        return json.loads(await self.ask("GET", "/tupper/status"))

    async def metrics(self):
        return json.loads(await self.ask("GET", "/metrics"))

    async def deadline(self, unix_s):
        await self.ask("POST", "/tupper/deadline", {"deadline": unix_s})

    async def log(self):
        return (await self.ask("GET", "/tupper/log")).decode()

    async def close(self):
        pass


class Forward:
    async def open(self, address, token, guest_port, host, host_port):
        async def serve(reader, writer):
            writer.write(str(guest_port).encode())
            writer.close()

        self.server = await asyncio.start_server(serve, host, host_port)
        return self.server.sockets[0].getsockname()[1]

    def close(self):
        self.server.close()


class Network:
    def __init__(self) -> None:
        self.attached: set[str] = set()
        self.admitted: set[str] = set()
        self.swept: list[set[str]] = []
        self.policies: dict[str, object] = {}

    async def prepare(self, sandbox_id, policy):
        self.attached.add(sandbox_id)
        return Attachment(address="10.0.0.2/30", dns=("10.0.0.1",), data={"id": sandbox_id})

    async def admit(self, attachment):
        self.admitted.add(attachment.data["id"])

    async def detach(self, attachment):
        self.attached.discard(attachment.data["id"])

    async def update(self, attachment, policy):
        check_policy(policy)
        self.policies[attachment.data["id"]] = policy

    async def sweep(self, keep):
        self.swept.append(set(keep))
        return []


class Images:
    def __init__(self, root: Path) -> None:
        self.rootfs = Rootfs(
            "sha256:0", root, ImageConfig(env={"A": "image"}, workdir="/srv", user="www")
        )
        self.pulled = 0

    def unbuilt(self):
        return ["base"]

    def is_recipe(self, name):
        return name == "base"

    async def peek(self, name):
        return None

    async def lookup(self, reference):
        return None

    def info(self, name):
        raise TemplateNotFound(f"there is no template {name}")

    async def ensure(self, reference, **_):
        if reference == "missing" or not isinstance(reference, str):
            raise ImageNotFound(f"image {reference} does not exist")
        self.pulled += 1
        return self.rootfs

    async def list(self):
        return []

    async def remove(self, reference, **use):
        self.in_use = use

    async def prune(self, *, in_use):
        return Pruned((), 0)


def choose(probes, wanted, least):
    usable = [
        p for p in probes if p.usable and (least is None or p.isolation.strength >= least.strength)
    ]
    if not usable:
        raise BackendUnavailable("no backend is good enough")
    return usable[0]


async def claim(source, target, timeout_s):
    async with asyncio.timeout(timeout_s):
        while not await _listens(source):  # the name is there a moment before
            await asyncio.sleep(0.005)
    source.rename(target)


async def _listens(path):
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def dial(address, token, port, *, carry=""):
    return await asyncio.open_unix_connection(address.path)


async def carry_on(address, token, carry):
    return None


async def make_disk(path, size_mib):
    with path.open("wb") as file:
        file.truncate(size_mib << 20)


@dataclass
class World:
    """The doubles of one test."""

    directory: Path
    backend: Backend
    network: Network = field(default_factory=Network)
    choose: object = staticmethod(choose)

    def __post_init__(self) -> None:
        self.images = Images(self.directory / "rootfs")
        self.templates = self.images
        self.paths = Paths(
            self.directory / "data", self.directory, self.directory / "cache", self.directory / "r"
        )

    def find_parts(self, paths, settings, engine_id):
        return Parts(
            images=self.images,
            templates=self.templates,
            network=self.network,
            backends={"double": self.backend},
            choose=choose,
            agent=Client,
            claim=claim,
            forward=Forward,
            make_disk=make_disk,
            agent_binary=lambda: Path("/bin/true"),
            policy=policy_of,
            dial=dial,
            carry_on=carry_on,
            bind=lambda context: None,
        )

    def leftovers(self):
        """What of any sandbox is still on the host."""
        found = [*(self.paths.data / "sandboxes").glob("*"), *(self.paths.runtime / "s").glob("*")]
        return [p.name for p in found] + sorted(self.network.attached)


def kill_pid(pid, ticks) -> None:
    if is_alive(pid, ticks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
