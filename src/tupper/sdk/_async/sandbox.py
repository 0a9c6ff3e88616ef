"""A sandbox: made, found, asked about, and ended."""

from __future__ import annotations

import builtins
import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn, Self, Unpack

from tupper.core import log
from tupper.sdk import _io_async as io
from tupper.sdk._async import copies, creating
from tupper.sdk._async.agent import Agent
from tupper.sdk._async.code import CodeRunner
from tupper.sdk._async.control import Control, decode, sandbox_path
from tupper.sdk._async.copies import AsyncSnapshotPaginator
from tupper.sdk._async.events import AsyncSandboxEvents
from tupper.sdk._async.git import AsyncGit
from tupper.sdk._async.paginator import AsyncSandboxPaginator
from tupper.sdk._faces_async import AsyncCommands, AsyncFilesystem, AsyncPty
from tupper.sdk._host import open_links, publish_port
from tupper.sdk._shared import errors
from tupper.sdk._shared.both import Both
from tupper.sdk._shared.create import (
    DEFAULT_TEMPLATE,
    Creation,
    PortSpec,
    check_port,
    parse_lifetime,
    render_network_change,
)
from tupper.sdk._shared.endpoint import AGENT_PORT, find_target
from tupper.sdk._shared.events import SandboxEventType, render_wish
from tupper.sdk._shared.info import Grant, parse_grant, parse_metrics
from tupper.sdk._shared.link import LinkError, Trouble
from tupper.sdk._shared.signature import get_signature, render_link
from tupper.sdk._shared.types import (
    ApiParams,
    MountSpec,
    SandboxInfo,
    SandboxLifecycle,
    SandboxListOrder,
    SandboxMetrics,
    SandboxNetworkOpts,
    SandboxNetworkUpdate,
    SandboxOnResume,
    SandboxQuery,
    SnapshotInfo,
    SnapshotMode,
    VolumeSpec,
)


async def _connect_by_id(
    cls: type[AsyncSandbox],
    sandbox_id: str,
    timeout: float | None = None,
    *,
    on_resume: SandboxOnResume = "restore",
    **opts: Unpack[ApiParams],
) -> AsyncSandbox:
    """Attach to a sandbox, by its id, its name, or a unique beginning of its id.

    A paused one is resumed.

    Args:
        cls: the class of the result.
        sandbox_id: which one.
        timeout: it lives at least this many seconds from now; never shortens its life.
        on_resume: a paused one goes on where it was (``restore``), or boots from its files.
        opts: how to reach the server.

    Errors:
        SandboxNotFoundException: there is none, or it has ended.
    """
    control = Control(find_target(opts))
    return cls(control, await _connect(control, sandbox_id, timeout, on_resume))


async def _kill_by_id(cls: type[AsyncSandbox], sandbox_id: str, **opts: Unpack[ApiParams]) -> bool:
    """End a sandbox, with all that is in it. Returns False if there is none."""
    control = Control(find_target(opts))
    try:
        return await _kill(control, sandbox_id)
    finally:
        await control.close()


async def _set_timeout_by_id(
    cls: type[AsyncSandbox], sandbox_id: str, timeout: float, **opts: Unpack[ApiParams]
) -> None:
    """Let a sandbox end this many seconds from now; longer or shorter than before.

    Errors:
        SandboxNotFoundException: there is none, or it has ended.
    """
    control = Control(find_target(opts))
    try:
        await _set_timeout(control, sandbox_id, timeout)
    finally:
        await control.close()


async def _get_info_by_id(
    cls: type[AsyncSandbox], sandbox_id: str, **opts: Unpack[ApiParams]
) -> SandboxInfo:
    """What is known about a sandbox.

    Errors:
        SandboxNotFoundException: there is none, or it has ended.
    """
    control = Control(find_target(opts))
    try:
        return await _get_info(control, sandbox_id)
    finally:
        await control.close()


async def _get_metrics_by_id(
    cls: type[AsyncSandbox],
    sandbox_id: str,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    **opts: Unpack[ApiParams],
) -> list[SandboxMetrics]:
    """What a sandbox used, at several times; ``start`` and ``end`` bound them."""
    control = Control(find_target(opts))
    try:
        return await _get_metrics(control, sandbox_id, start, end)
    finally:
        await control.close()


async def _update_network_by_id(
    cls: type[AsyncSandbox],
    sandbox_id: str,
    network: SandboxNetworkUpdate | Mapping[str, object],
    **opts: Unpack[ApiParams],
) -> None:
    """Replace what a sandbox may reach, at once; what is left out is not restricted.

    Errors:
        SandboxNotFoundException: there is none, or it has ended.
        InvalidArgumentException: not an IPv4 address or CIDR.
    """
    control = Control(find_target(opts))
    try:
        await _update_network(control, sandbox_id, network)
    finally:
        await control.close()


class AsyncSandbox(CodeRunner):
    """A machine of its own kernel, with commands, files and terminals in it.

    Use it as a context manager, and it ends with the block::

        async with await AsyncSandbox.create() as sandbox:
            print((await sandbox.commands.run("uname -a")).stdout)

    Made by :meth:`create` or :meth:`connect`, not by its constructor.

    Args:
        control: the control plane that it belongs to.
        grant: what that answered.
    """

    default_template = DEFAULT_TEMPLATE
    default_sandbox_timeout = 300

    def __init__(self, control: Control, grant: Grant) -> None:
        self._control = control
        self._grant = grant
        self._ports = dict(grant.ports)
        self._links: str | None = None
        self._agent = Agent(control, grant, control.target.request_timeout_s)
        self._commands = AsyncCommands(self._agent)
        self._files = AsyncFilesystem(self._agent)
        self._pty = AsyncPty(self._agent)
        self._git = AsyncGit(self._commands)

    @classmethod
    async def create(
        cls,
        template: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        secure: bool | None = None,
        allow_internet_access: bool | None = None,
        mcp: object = None,
        network: SandboxNetworkOpts | Mapping[str, object] | None = None,
        iam: object = None,
        lifecycle: SandboxLifecycle | None = None,
        volume_mounts: Mapping[str, object] | None = None,
        logger: logging.Logger | None = None,
        idempotency_key: str | None = None,
        *,
        image: str | None = None,
        backend: str | None = None,
        min_isolation: Literal["hardware-vm", "emulated-vm", "user-kernel"] | None = None,
        name: str | None = None,
        cpus: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
        mounts: Sequence[MountSpec] | None = None,
        volumes: VolumeSpec | None = None,
        ports: PortSpec | None = None,
        idle_timeout: float | None = None,
        workdir: str | None = None,
        user: str | None = None,
        backend_options: Mapping[str, object] | None = None,
        labels: Mapping[str, str] | None = None,
        profile: str | None = None,
        allow_host_ports: Sequence[int] | None = None,
        owner: Literal["process"] | None = None,
        fallback: Sequence[Literal["e2b"]] | None = None,
        **opts: Unpack[ApiParams],
    ) -> Self:
        """Make a sandbox; returns when it takes commands.

        If the caller is cancelled or interrupted meanwhile, no sandbox is left.

        Args:
            template: its name; ``base`` if neither this nor ``image`` is given.
            timeout: seconds until it ends, counted from now; 300 if not given, ``math.inf`` for
                never.
            metadata: pairs of text that ``list`` can filter by.
            envs: environment of all its commands.
            secure: exists for compatibility; every sandbox has a token.
            allow_internet_access: whether it may reach the internet; the default is a setting.
            mcp: not here yet.
            network: ranges that it may (``allow_out``) or may not (``deny_out``) reach; whether
                anybody may reach its ports (``allow_public_traffic``), as which host they are
                called (``mask_request_host``) and which of them speak TLS (``https_ports``).
            iam: not here.
            lifecycle: ``{"on_timeout": "pause", "auto_resume": True}`` pauses it when its time is
                over, and resumes it when somebody uses one of its ports.
            volume_mounts: path inside → a volume, or its name; see :class:`AsyncVolume`.
            logger: exists for compatibility.
            idempotency_key: a second create with the same key gives the same sandbox.
            image: an OCI image instead of a template: a reference, a layout or an archive.
            backend: which one; the strongest usable if not given. ``e2b`` is E2B's cloud.
            min_isolation: refuse to make anything weaker.
            name: a unique one, usable in place of the id.
            cpus: cores, may be fractional.
            memory: MiB, or text such as ``512m`` or ``1GiB``.
            disk: what it may write; MiB or text.
            pids: the most processes.
            mounts: host directories: :class:`Mount`, ``"host:guest[:ro]"`` or tuples.
            volumes: the same as a mapping: ``{"./data": "/data"}`` or
                ``{"/srv": {"bind": "/data", "mode": "ro"}}``.
            ports: inside ports to publish: ``[8000]``, ``["8080:80"]`` or ``{8080: 80}``.
            idle_timeout: seconds without activity until it ends.
            workdir: where its commands start.
            user: who runs them.
            backend_options: for the backend; it checks them.
            labels: the same as ``metadata``.
            profile: of the configuration, whose values fill what is not given here.
            allow_host_ports: ports of the host's loopback that it may reach.
            owner: ``process`` ends it when this process is gone, however that happens.
            fallback: ``["e2b"]`` allows E2B's cloud, if no backend can be used here.
            opts: how to reach the server.

        Errors:
            NotFoundException: no such template, image, backend or profile.
            InvalidArgumentException: a value that cannot be used; the text names it.
            RateLimitException: as many sandboxes, or as much memory, as there may be.
            NotEnoughSpaceException: too little disk on the host.
            UnavailableException: no usable backend, or no server.
        """
        refuse(mcp=mcp, iam=iam)
        if image is None and cls.default_template != DEFAULT_TEMPLATE:
            template = template or cls.default_template  # a subclass with one of its own
        creation = Creation(
            template=template,
            timeout=timeout,
            metadata=metadata,
            envs=envs,
            secure=secure,
            allow_internet_access=allow_internet_access,
            network=network,
            lifecycle=lifecycle,
            volume_mounts=volume_mounts,
            image=image,
            backend=backend,
            min_isolation=min_isolation,
            name=name,
            cpus=cpus,
            memory=memory,
            disk=disk,
            pids=pids,
            mounts=mounts,
            volumes=volumes,
            ports=ports,
            idle_timeout=idle_timeout,
            workdir=workdir,
            user=user,
            backend_options=backend_options,
            labels=labels,
            allow_host_ports=allow_host_ports,
            owner=owner,
            fallback=fallback,
        )
        control, grant = await creating.create(
            creation, opts, profile=profile, idempotency_key=idempotency_key
        )
        return cls(control, grant)

    async def _connect_own(
        self,
        timeout: float | None = None,
        *,
        on_resume: SandboxOnResume = "restore",
        **opts: Unpack[ApiParams],
    ) -> AsyncSandbox:
        """Prolong its life: at least this many seconds from now. A paused one is resumed."""
        await _connect(self._control, self.sandbox_id, timeout, on_resume)
        return self

    connect = Both(_connect_by_id, _connect_own)

    async def reconnect(self) -> Self:
        """Attach again after a restart of the server, or with connections that are in doubt."""
        await self._agent.close()
        return self.__class__(self._control, await _connect(self._control, self.sandbox_id, None))

    @classmethod
    def list(
        cls,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: SandboxListOrder | None = None,
        **opts: Unpack[ApiParams],
    ) -> AsyncSandboxPaginator:
        """The sandboxes, page by page. See :class:`AsyncSandboxPaginator`."""
        return AsyncSandboxPaginator(query, limit, next_token, order, **opts)

    @classmethod
    async def events(
        cls,
        sandbox_id: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        types: Sequence[SandboxEventType | str] | None = None,
        **opts: Unpack[ApiParams],
    ) -> AsyncSandboxEvents:
        """Follow what happens to sandboxes from now on: created, paused, resumed, ended and why.

        Args:
            sandbox_id: only to this one, by id, name or a unique beginning of the id.
            metadata: only to sandboxes that have all of these pairs.
            types: only these; all if not given.
            opts: how to reach the server.

        Errors:
            SandboxNotFoundException: there is no such sandbox.
        """
        target = find_target(opts)
        target.refuse_cloud("events")
        query = render_wish(sandbox_id, metadata, types)
        return await AsyncSandboxEvents(Control(target), query).open()

    @property
    def sandbox_id(self) -> str:
        """``i`` and 20 letters or digits."""
        return self._grant.sandbox_id

    @property
    def sandbox_domain(self) -> str:
        """Under which its ports are reachable; empty for a local one."""
        cloud = self._control.target.cloud
        return self._grant.domain or (cloud.domain if cloud else "")

    @property
    def traffic_access_token(self) -> str | None:
        """What requests to its ports must carry; None if nothing."""
        return self._grant.traffic_token

    @property
    def commands(self) -> AsyncCommands:
        """Runs commands."""
        return self._commands

    @property
    def files(self) -> AsyncFilesystem:
        """Works with files."""
        return self._files

    @property
    def pty(self) -> AsyncPty:
        """Opens terminals."""
        return self._pty

    @property
    def git(self) -> AsyncGit:
        """Runs git."""
        return self._git

    async def _kill_own(self, **opts: Unpack[ApiParams]) -> bool:
        """End it, with all that is in it. Returns False if it had ended before."""
        killed = await _kill(self._control, self.sandbox_id)
        await self.close()
        return killed

    kill = Both(_kill_by_id, _kill_own)

    async def _set_timeout_own(self, timeout: float, **opts: Unpack[ApiParams]) -> None:
        """Let it end this many seconds from now; longer or shorter than before.

        Errors:
            SandboxNotFoundException: it has ended.
        """
        await _set_timeout(self._control, self.sandbox_id, timeout)

    set_timeout = Both(_set_timeout_by_id, _set_timeout_own)

    async def set_idle_timeout(self, idle_timeout: float | None) -> None:
        """Let it end after this many seconds without activity; None for never."""
        self._control.target.refuse_cloud("set_idle_timeout")
        path = sandbox_path(self.sandbox_id, "/idle-timeout", version="/tupper/v1")
        await self._control.call("POST", path, body={"idleTimeout": idle_timeout})

    async def _get_info_own(self, **opts: Unpack[ApiParams]) -> SandboxInfo:
        """What is known about it.

        Errors:
            SandboxNotFoundException: it has ended.
        """
        return await _get_info(self._control, self.sandbox_id)

    get_info = Both(_get_info_by_id, _get_info_own)

    async def _get_metrics_own(
        self,
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        **opts: Unpack[ApiParams],
    ) -> builtins.list[SandboxMetrics]:
        """What it used, at several times; ``start`` and ``end`` bound them."""
        return await _get_metrics(self._control, self.sandbox_id, start, end)

    get_metrics = Both(_get_metrics_by_id, _get_metrics_own)

    async def _update_network_own(
        self, network: SandboxNetworkUpdate | Mapping[str, object], **opts: Unpack[ApiParams]
    ) -> None:
        """Replace what it may reach, at once; what is left out is not restricted.

        Errors:
            SandboxNotFoundException: it has ended.
            InvalidArgumentException: not an IPv4 address or CIDR.
        """
        await _update_network(self._control, self.sandbox_id, network)

    update_network = Both(_update_network_by_id, _update_network_own)

    async def is_running(self, request_timeout: float | None = None) -> bool:
        """Whether it lives. One that does not answer but was not ended lives."""
        try:
            return await self._agent.is_healthy()
        except LinkError as error:
            reason = await self._control.explain(self.sandbox_id, error.trouble)
            if isinstance(reason, errors.SandboxNotRunningException):
                return False
            if error.trouble is Trouble.SILENT:
                return True
            raise reason from error

    async def get_log(self) -> str:
        """What its agent and its machine had to say; for finding out what went wrong."""
        self._control.target.refuse_cloud("get_log")
        path = sandbox_path(self.sandbox_id, "/log", version="/tupper/v1")
        return (await self._control.call("GET", path)).body.decode("utf-8", "replace")

    def get_host(self, port: int) -> str:
        """The address, ``host:port``, at which a port inside can be reached.

        For a local sandbox the port is published on 127.0.0.1 by the first call, which waits for
        the server for some milliseconds, in the async half too. If its ports are private or its
        requests are changed (``network``), the address is ``PORT-ID.localhost:N``: a request there
        brings :attr:`traffic_access_token` as the header ``e2b-traffic-access-token``.

        Args:
            port: inside; it need not be open yet.
        """
        if check_port(port) in self._ports:
            return self._ports[port]
        if domain := self.sandbox_domain:
            return f"{port}-{self.sandbox_id}.{domain}"
        if self._grant.plain_ports:
            address = publish_port(self._control.target, self.sandbox_id, port)
        else:  # the server's edge asks for the token and dresses the request
            links = open_links(self._control.target).rpartition(":")[2]
            address = f"{port}-{self.sandbox_id}.localhost:{links}"
        self._ports[port] = address
        return address

    def download_url(
        self, path: str, user: str | None = None, use_signature_expiration: int | None = None
    ) -> str:
        """A link that reads a file, for programs without this SDK.

        For a local sandbox it leads to an address on 127.0.0.1 that the first call opens.

        Args:
            path: of the file.
            user: decides what a relative path means.
            use_signature_expiration: seconds until it stops to work; None for never.
        """
        return self._link(path, "read", user, use_signature_expiration)

    def upload_url(
        self, path: str, user: str | None = None, use_signature_expiration: int | None = None
    ) -> str:
        """A link that writes a file, by a POST of a form; see :meth:`download_url`."""
        return self._link(path, "write", user, use_signature_expiration)

    def _link(
        self,
        path: str,
        operation: Literal["read", "write"],
        user: str | None,
        expiration_s: int | None,
    ) -> str:
        target = self._control.target
        if self._links is None and target.cloud is not None:
            domain = self._grant.domain
            self._links = target.cloud.origin(self.sandbox_id, domain, AGENT_PORT, {}, "").url
        if self._links is None:
            origin = target.origin()
            self._links = open_links(target) if origin.socket else origin.url
        token = self._grant.token
        signature = None
        if token:
            signature = get_signature(path, operation, user, token, expiration_s)
        return render_link(self._links, path, user, signature)

    async def close(self) -> None:
        """Close the connections. The sandbox goes on, and this object can be used again."""
        if self._interpreter is not None:
            await self._interpreter.close()
        await self._agent.close()
        await self._control.close()

    async def __aenter__(self) -> Self:
        """Itself; it is killed at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Kill it, however often we are cancelled meanwhile; the block's error is what surfaces."""
        try:
            await io.to_end(self.kill())
        except BaseException as failure:
            if error is None:
                raise
            log.problem("sandbox.kill_failed", sandbox=self.sandbox_id, error=str(failure))

    async def _pause_own(
        self,
        keep_memory: bool | None = None,
        *,
        mode: SnapshotMode | None = None,
        strict: bool = False,
        **opts: Unpack[ApiParams],
    ) -> bool:
        """Lay it on disk: memory, processes and files, or with ``mode="filesystem"`` files only.

        It then takes no processor and no memory, outlives restarts of everything, and its time
        stands still. ``connect`` resumes it.

        Returns:
            False if it was paused already.

        Errors:
            SandboxNotFoundException: it has ended.
            UnsupportedException: its backend cannot save.
        """
        return await copies.pause(self._control, self.sandbox_id, keep_memory, mode, strict=strict)

    pause = Both(copies.pause_by_id, _pause_own)
    beta_pause = pause

    async def _create_snapshot_own(
        self,
        name: str | None = None,
        *,
        mode: SnapshotMode | None = None,
        **opts: Unpack[ApiParams],
    ) -> SnapshotInfo:
        """Save it as something that others can be started from: ``create(info.snapshot_id)``.

        It goes on, and what runs in it does not notice. A name, also ``name:tag``, can be used in
        place of the id; it goes over from an older snapshot.
        """
        return await copies.create_snapshot(self._control, self.sandbox_id, name, mode)

    create_snapshot = Both(copies.create_snapshot_by_id, _create_snapshot_own)

    def _list_snapshots_own(
        self,
        limit: int | None = None,
        next_token: str | None = None,
        name: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> AsyncSnapshotPaginator:
        """Its snapshots, page by page."""
        return AsyncSnapshotPaginator(
            self.sandbox_id, name, limit, next_token, control=self._control, **opts
        )

    list_snapshots = Both(copies.list_snapshots_of_all, _list_snapshots_own)

    @classmethod
    async def delete_snapshot(cls, snapshot_id: str, **opts: Unpack[ApiParams]) -> bool:
        """Remove a snapshot; what was started from it goes on. Returns False if there is none."""
        control = Control(find_target(opts))
        try:
            return await copies.delete_snapshot(control, snapshot_id)
        finally:
            await control.close()

    async def _fork_own(
        self, timeout: float | None = None, count: int | None = None, **opts: Unpack[ApiParams]
    ) -> builtins.list[AsyncSandbox | Exception]:
        """Start copies of it, each with its memory, processes and files as they are now.

        It goes on. Each copy has an id, a token and a network of its own, and lives for
        ``timeout`` seconds.

        Returns:
            For each copy a sandbox, or why it could not be started.
        """
        made = await copies.fork(self._control, self.sandbox_id, timeout, count)
        return [
            one if isinstance(one, Exception) else self.__class__(self._control, one)
            for one in made
        ]

    fork = Both(copies.fork_by_id, _fork_own)

    # --- what E2B has and this host cannot do yet: the reason, not an AttributeError --------------

    def get_mcp_url(self) -> str:
        """Not here yet."""
        unsupported("get_mcp_url", "there is no MCP gateway in sandboxes here")

    async def get_mcp_token(self) -> str | None:
        """Not here yet."""
        unsupported("get_mcp_token", "there is no MCP gateway in sandboxes here")


def unsupported(operation: str, reason: str) -> NoReturn:
    """Say that something of E2B's does not exist here."""
    raise errors.UnsupportedException(f"{operation} is not supported: {reason}")


def refuse(**given: object) -> None:
    """Refuse arguments that exist only at E2B."""
    for name, value in given.items():
        if value:
            raise errors.UnsupportedException(f"create: {name} is not supported here")


async def _connect(
    control: Control,
    sandbox_id: str,
    timeout: float | None,
    on_resume: SandboxOnResume = "restore",
) -> Grant:
    if on_resume not in ("restore", "reboot"):
        raise errors.InvalidArgumentException(f"on_resume={on_resume!r}: 'restore' or 'reboot'")
    body: dict[str, object] = {} if timeout is None else {"timeout": parse_lifetime(timeout)}
    if on_resume == "reboot":
        body["memory"] = False
    path = sandbox_path(sandbox_id, "/connect", version="/v2")
    try:
        answer = await control.call("POST", path, body=body)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error
    return parse_grant(control.read(answer))


async def _kill(control: Control, sandbox_id: str) -> bool:
    try:
        await control.call("DELETE", sandbox_path(sandbox_id))
    except errors.NotFoundException:
        return False
    return True


async def _set_timeout(control: Control, sandbox_id: str, timeout: float) -> None:
    body = {"timeout": parse_lifetime(timeout)}
    try:
        await control.call("POST", sandbox_path(sandbox_id, "/timeout"), body=body)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error


async def _update_network(control: Control, sandbox_id: str, network: Mapping[str, object]) -> None:
    try:
        await control.call(
            "PUT", sandbox_path(sandbox_id, "/network"), body=render_network_change(network)
        )
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error


async def _get_info(control: Control, sandbox_id: str) -> SandboxInfo:
    try:
        return await control.get_info(sandbox_id)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error


async def _get_metrics(
    control: Control, sandbox_id: str, start: dt.datetime | None, end: dt.datetime | None
) -> builtins.list[SandboxMetrics]:
    window = {"start": start, "end": end}
    query = {key: str(int(at.timestamp())) for key, at in window.items() if at is not None}
    try:
        answer = await control.call("GET", sandbox_path(sandbox_id, "/metrics"), query=query)
    except errors.NotFoundException as error:
        raise errors.sandbox_not_found(error, sandbox_id) from error
    return parse_metrics(decode(answer))
