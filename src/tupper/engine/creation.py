"""Making a sandbox: a straight list of steps, each with its undo beside it.

The undos are on one ``AsyncExitStack`` and are released only when the sandbox is running. What can
overlap does: the record, the directory with its disk, the network and the root filesystem are
made at once; the network is opened while the machine starts, which hears and sends nothing before;
the machine's record is saved while its agent starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ParamSpec

from tupper.core import userns
from tupper.core.backend import (
    Attachment,
    Backend,
    Capability,
    Layer,
    Machine,
    MachinePlan,
    Probe,
    Rootfs,
)
from tupper.core.errors import BackendNotFound, MachineFailed, TupperError, Unsupported
from tupper.core.lifecycle import EndReason, OnTimeout, State
from tupper.core.log import event, problem
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.engine.context import Context
from tupper.engine.inside import Inside
from tupper.engine.launch import READY_S, launch
from tupper.engine.parts import AgentClient
from tupper.engine.ports import publish
from tupper.engine.sandbox import Sandbox
from tupper.engine.together import together, unless_ended
from tupper.protocol.fields import Fields

_P = ParamSpec("_P")

AGENT_STARTS_S = 30.0
_CLAIM_S = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GUEST_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_BUILD_BUNDLE = "/run/tupper-ca.pem"
# Programs that do not look at the system's bundle by themselves, and how they are told. All of
# these replace, so they get the merged bundle; with Node's it does no harm to name it too.
_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "NIX_SSL_CERT_FILE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)  # fmt: skip


class Creation:
    """The making of one sandbox; used once. Restoring a saved one differs in some of the steps.

    Args:
        context: of the engine.
        sandbox: with its record as it was reserved.
        request: what it shall be.
        ground: for a build: the root filesystem that it writes straight into, instead of one from
            the store and a disk of its own.
        layer: for a build: what makes its root filesystem.
    """

    done = "sandbox.running"

    def __init__(
        self,
        context: Context,
        sandbox: Sandbox,
        request: CreateRequest,
        *,
        ground: Rootfs | None = None,
        layer: Layer | None = None,
    ) -> None:
        self._context = context
        self._sandbox = sandbox
        self._request = request
        self._attachment: Attachment | None = None
        self._rootfs = ground
        self._is_build = ground is not None
        self._layer = layer
        self._added = ""
        self._bundle = ""

    @property
    def request(self) -> CreateRequest:
        """What it shall be."""
        return self._request

    async def run(self) -> None:
        """Make it. On failure or cancellation nothing is left but an ended record."""
        marks = [time.monotonic()]
        async with AsyncExitStack() as undo:
            probe = await self._choose()
            backend = self._context.parts.backends[probe.backend]
            undo.push_async_exit(self._mark_failed)
            async with self._context.gate.use():
                await together(
                    self._remember(),
                    self._make_directory(undo),
                    self._attach(undo),
                    self._find_rootfs(),
                )
            marks.append(time.monotonic())
            await together(self._admit(), self._bring_up(backend, undo, marks))
            await self._launch()
            await self._publish(undo)
            await self._be_running()
            undo.pop_all()
        marks.append(time.monotonic())
        event(
            self.done,
            sandbox=self._sandbox.id,
            backend=probe.backend,
            prepare_s=marks[1] - marks[0],
            start_s=marks[2] - marks[1],
            ready_s=marks[3] - marks[2],
        )

    async def _remember(self) -> None:
        await self._context.store.insert(self._sandbox.record)

    async def _choose(self) -> Probe:
        """Which backend, and what isolates the sandbox then."""
        request, parts = self._request, self._context.parts
        wanted = request.backend or self._context.settings.backend
        if wanted and wanted not in parts.backends:
            raise BackendNotFound(
                f"no backend is named {wanted!r}",
                hint=f"there are: {', '.join(sorted(parts.backends))}",
            )
        names = [wanted] if wanted else list(parts.backends)
        probes = await asyncio.gather(*(parts.backends[name].probe() for name in names))
        probe = parts.choose(probes, wanted, request.min_isolation)
        if request.mounts and Capability.MOUNTS not in probe.capabilities:
            raise Unsupported(probe.backend, "mounts", probe.details.get("mounts", ""))
        if request.on_timeout is OnTimeout.PAUSE and Capability.SNAPSHOT not in probe.capabilities:
            raise Unsupported(probe.backend, "a pause when its time is over")
        if request.on_timeout is OnTimeout.PAUSE and request.mounts:
            require_saved_mounts(probe)
        self._sandbox.change(
            backend=probe.backend,
            isolation=str(probe.isolation or ""),
            mechanism=probe.mechanism,
            kernel=probe.kernel,
        )
        return probe

    async def _make_directory(self, undo: AsyncExitStack) -> None:
        """The sandbox's own directory, and in it the disk for all that the guest writes."""
        directory = self._context.directory(self._sandbox.id)
        directory.mkdir(mode=0o700, parents=True)
        later(undo, remove_tree, directory)
        if not self._is_build:
            size_mib = self._sandbox.record.disk_mib
            await self._context.parts.make_disk(directory / "disk.img", size_mib)

    async def _attach(self, undo: AsyncExitStack) -> None:
        parts = self._context.parts
        attachment = await parts.network.prepare(
            self._sandbox.id, parts.policy(self._sandbox.record)
        )
        later(undo, parts.network.detach, attachment)
        self._attachment = attachment

    async def _admit(self) -> None:
        """Let the guest's packets through, judged. Nothing passes the link before."""
        if self._attachment is not None:
            await self._context.parts.network.admit(self._attachment)

    async def _bring_up(self, backend: Backend, undo: AsyncExitStack, marks: list[float]) -> None:
        machine = await self._start(backend, undo)
        marks.append(time.monotonic())
        await self._await_agent(machine, undo)

    async def _find_rootfs(self) -> None:
        request, parts = self._request, self._context.parts
        if self._is_build:
            return
        if request.image:
            rootfs = await parts.images.ensure(request.image)
        else:
            rootfs = await parts.templates.ensure(request.template)
        self._rootfs = rootfs
        # No await in between: from here the image counts as used.
        self._sandbox.change(rootfs_digest=rootfs.digest)
        if request.cpus is None and rootfs.config.cpus:
            self._sandbox.change(cpus=rootfs.config.cpus)
        if request.memory_mib is None and rootfs.config.memory_mib:
            self._sandbox.change(memory_mib=rootfs.config.memory_mib)

    async def _start(self, backend: Backend, undo: AsyncExitStack) -> Machine:
        plan = await self._plan()
        if self._attachment is not None:
            self._sandbox.change(attachment=attachment_json(self._attachment))
        machine = await self._boot(backend, plan)
        later(undo, stop_now, machine)
        self._sandbox.machine = machine
        self._sandbox.change(machine=machine.record)
        return machine

    async def _boot(self, backend: Backend, plan: MachinePlan) -> Machine:
        return await backend.start(plan)

    async def _plan(self) -> MachinePlan:
        if self._rootfs is None:
            raise MachineFailed("no root filesystem")
        context, record = self._context, self._sandbox.record
        directory = context.directory(record.id)
        hostname = hostname_of(record)
        files = etc_files(hostname, self._attachment)
        if context.settings.trust_host_ca:
            added = await context.trust.added()
            if added and self._is_build:
                # What a build writes stays in the template, and a host's authority must not.
                files[_BUILD_BUNDLE] = await context.trust.bundle()
                self._bundle = _BUILD_BUNDLE
            elif added:
                self._added, self._bundle = added, _GUEST_BUNDLE
        digest, binary = context.binaries.keep(context.parts.agent_binary())
        self._sandbox.change(agent_digest=digest)
        return MachinePlan(
            sandbox_id=record.id,
            host_name=context.host_name(record.id),
            directory=directory,
            rootfs=self._rootfs,
            disk_image=None if self._is_build else directory / "disk.img",
            disk_mib=record.disk_mib,
            attachment=self._attachment,
            mounts=record.mounts,
            cpus=record.cpus,
            memory_mib=record.memory_mib,
            pids=record.pids,
            hostname=hostname,
            agent_binary=binary,
            agent_config=self._agent_config(self._rootfs, hostname),
            etc_files=files,
            options=self._request.backend_options,
            layer=self._layer,
        )

    def _agent_config(self, rootfs: Rootfs, hostname: str) -> dict[str, object]:
        record, request, config = self._sandbox.record, self._request, rootfs.config
        bundle = dict.fromkeys(_BUNDLE_VARIABLES, self._bundle) if self._bundle else {}
        out: dict[str, object] = {
            "accessToken": record.token,
            "sandboxId": record.id,
            "templateId": record.template,
            "defaultUser": request.user or config.user,
            "defaultWorkdir": request.workdir or config.workdir,
            "envVars": {"PATH": _PATH} | bundle | dict(config.env) | dict(request.env),
            "hostname": hostname,
            "limits": {
                "pids": record.pids,
                "memoryMiB": record.memory_mib,
                "diskMiB": record.disk_mib,
            },
            "init": True,
            "sudo": True,
            "onExit": "exit",
        }
        if self._added:
            out["caBundle"] = self._added
        if record.timeout_s is not None and record.on_timeout is OnTimeout.KILL:
            # Corrected once it is ready; until then it may not outlive a failed creation by much.
            out["deadline"] = time.time() + AGENT_STARTS_S + record.timeout_s
        return out

    async def _await_agent(self, machine: Machine, undo: AsyncExitStack) -> None:
        """Save the machine's record while its agent starts; then take its socket and ask it."""
        context, sandbox = self._context, self._sandbox
        try:
            await together(
                context.store.save(sandbox.record),
                unless_ended(
                    machine,
                    self._reach_agent(machine, undo),
                    timeout_s=AGENT_STARTS_S,
                    what=f"the start of the agent in sandbox {sandbox.id}",
                ),
            )
        except TimeoutError as error:
            raise MachineFailed(f"the agent of sandbox {sandbox.id} did not answer") from error

    async def _reach_agent(self, machine: Machine, undo: AsyncExitStack) -> None:
        context, sandbox, address = self._context, self._sandbox, machine.agent
        if address.kind == "unix":
            private = context.socket(sandbox.id)
            undo.callback(private.unlink, missing_ok=True)
            await context.parts.claim(Path(address.path), private, _CLAIM_S)
            address = type(address)("unix", str(private))
        client = context.parts.agent(address, self._first_token())
        later(undo, client.close)
        await client.health()
        machine.agent_answered()
        await self._introduce(client)
        sandbox.client = client
        sandbox.change(agent=address)

    def _first_token(self) -> str:
        """What the agent asks for when it first answers."""
        return self._sandbox.record.token

    async def _introduce(self, client: AgentClient) -> None:
        """Tell the agent who it is, where its configuration did not."""

    async def _launch(self) -> None:
        """Run what the template starts, until it is ready."""
        machine, config = self._sandbox.machine, self._rootfs and self._rootfs.config
        if self._is_build or not machine or not config or not (config.start or config.ready):
            return
        await unless_ended(
            machine,
            launch(Inside(self._context, self._sandbox), config),
            timeout_s=2 * READY_S,
            what=f"the start command of sandbox {self._sandbox.id}",
        )

    async def _publish(self, undo: AsyncExitStack) -> None:
        for port in self._request.ports:
            undo.callback(_close_forward, self._sandbox, port.guest)
            await publish(self._sandbox, self._context.parts, port.guest, port.host)

    async def _be_running(self) -> None:
        """Lifetimes count from here. Microseconds, as clients see them, so that pages fit."""
        now, record = round(time.time(), 6), self._sandbox.record
        deadline = None if record.timeout_s is None else now + record.timeout_s
        self._sandbox.change(state=State.RUNNING, started_at=now, deadline=deadline)
        await self._context.store.save(self._sandbox.record)

    async def _mark_failed(self, kind: object, error: BaseException | None, trace: object) -> None:
        """The last undo: keep an ended record that says why."""
        del kind, trace
        killed = isinstance(error, asyncio.CancelledError)
        detail = "ended while it was started" if killed else str(error)
        reason = EndReason.KILLED if killed else EndReason.START_FAILED
        self._sandbox.change(
            state=State.ENDED, ended_at=time.time(), end_reason=reason, end_detail=detail[:4096]
        )
        await self._context.save_end(self._sandbox.record)
        problem(
            "sandbox.failed", sandbox=self._sandbox.id, reason=reason, error=type(error).__name__
        )


def require_saved_mounts(probe: Probe) -> None:
    """Refuse to save a sandbox with mounts where the backend cannot.

    Raises:
        Unsupported: it cannot.
    """
    if Capability.SAVE_MOUNTS not in probe.capabilities:
        raise Unsupported(probe.backend, "a pause of a sandbox with mounts")


def later(
    undo: AsyncExitStack, step: Callable[_P, Awaitable[object]], *args: _P.args, **kw: _P.kwargs
) -> None:
    """Register an undo whose own failure is logged, so that the cause surfaces, not it."""

    async def quietly() -> None:
        try:
            await step(*args, **kw)
        except (TupperError, OSError) as error:
            problem("undo.failed", step=step.__qualname__, message=str(error))

    undo.push_async_callback(quietly)


async def stop_now(machine: Machine) -> None:
    """End a machine without a grace."""
    await machine.stop(grace_s=0)


def hostname_of(record: SandboxRecord) -> str:
    """What a guest calls itself: its name, as far as that can be one of a host, or its id."""
    return record.name.replace("_", "-").strip(".-") or record.id


def _close_forward(sandbox: Sandbox, guest_port: int) -> None:
    if forward := sandbox.forwards.pop(guest_port, None):
        forward.close()


async def remove_tree(directory: Path) -> None:
    """Remove a directory of ours and all below; never follows a link out of it."""
    with contextlib.suppress(OSError, TupperError):
        await asyncio.to_thread(userns.remove_tree, directory)


def etc_files(hostname: str, attachment: Attachment | None) -> dict[str, str]:
    """The small files that tell a guest its name, others' names and its name servers."""
    servers = attachment.dns if attachment is not None else ()
    names = Fields(attachment.data if attachment is not None else {}).text_map("hosts")
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        f"127.0.1.1 {hostname}",
        *(f"{address} {name}" for name, address in names.items()),
    ]
    files = {"/etc/hostname": f"{hostname}\n", "/etc/hosts": "".join(f"{x}\n" for x in lines)}
    files["/etc/resolv.conf"] = "".join(f"nameserver {server}\n" for server in servers)
    return files


def attachment_json(attachment: Attachment) -> Mapping[str, object]:
    """An attachment as the record keeps it."""
    return {
        "netns": attachment.netns,
        "holder_pid": attachment.holder_pid,
        "interface": attachment.interface,
        "address": attachment.address,
        "gateway": attachment.gateway,
        "dns": list(attachment.dns),
        "mtu": attachment.mtu,
        "data": dict(attachment.data),
    }
