"""Networks for an engine that is root: a namespace, a link, and shared packet filter sets.

Each sandbox has a network namespace with one device, the far end of a link into the host's
namespace, with a /30. All rules are on the host's side (see ``ruleset``). Nothing of ours runs:
name service, translation and refusals are the kernel's work, so sandboxes outlive this process.

What exists of a sandbox, in the order in which it is made: the namespace (its name carries engine
and sandbox), the link (its name carries engine and subnet, its alias the sandbox), a file in the
data directory (address and policy, so that flushed rules can be made again), the set elements.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import ClassVar

from tupper.core import log, process
from tupper.core.backend import Attachment
from tupper.core.errors import (
    AlreadyExists,
    CapacityReached,
    InvalidArgument,
    NetworkError,
    NotFound,
    ProgramFailed,
    TupperError,
)
from tupper.core.kernel import in_thread
from tupper.network import devices, ruleset
from tupper.network.devices import NETNS_DIR
from tupper.network.firewalls import Firewalls
from tupper.network.forwarding import Forwarding, set_link
from tupper.network.policy import HOST_NAMES, Network, Policy, check_id, check_policy
from tupper.network.resolvers import find_resolvers, is_loopback
from tupper.network.routes import interfaces, mtu_of, route_to, routes
from tupper.network.state import Entry, State
from tupper.network.subnets import POOLS, Subnet, find_pool, pick_subnet
from tupper.protocol.connect import as_list, as_object

_DEVICE = "eth0"
_TIMEOUT_S = 30.0
_LINKS = re.compile(f"{ruleset.LINK_PREFIX}[a-z0-9]{{5}}")  # of any engine
_TRIES = 64
_PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
_MTU_MIN, _MTU_MAX = 576, 65535
_ANYWHERE = "1.1.1.1"  # only asked the routing table about; nothing is sent there


class Namespaces(Network):
    """The networks of one engine that is root.

    Args:
        engine_id: five lower-case letters or digits.
        data_dir: the engine's data directory.
        forwarding: for tests.
    """

    kind: ClassVar[str] = "namespace"

    def __init__(
        self, engine_id: str, data_dir: Path, *, forwarding: Forwarding | None = None
    ) -> None:
        if not re.fullmatch("[a-z0-9]{5}", engine_id):
            raise InvalidArgument(f"engine id {engine_id!r} is not five letters or digits")
        self._engine_id = engine_id
        self._state = State(data_dir / "network")
        self._forwarding = forwarding or Forwarding()
        self._firewalls = Firewalls(engine_id)
        # Held around every change of the table and of other firewalls: making an element must not
        # meet the removal of the table that comes with the last sandbox.
        self._lock = asyncio.Lock()
        self._resolvers: tuple[str, ...] | None = None
        self._attaching: set[str] = set()  # not for a sweep that comes in between
        self._joining: list[Entry] = []
        self._leaving: list[ruleset.Member] = []
        self._has_directory = False  # perhaps; nobody takes it away once it is there
        self._may_have_table = True  # an earlier process may have left one
        self._is_clean = False  # nothing of ours is on the host, as far as we know

    async def prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        """See :meth:`Network.prepare`. The host's end of the link is down until it is admitted."""
        check_id(sandbox_id)
        check_policy(policy)
        self._attaching.add(sandbox_id)
        try:
            return await self._prepare(sandbox_id, policy)
        except BaseException:
            self._attaching.discard(sandbox_id)
            raise

    async def _prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        netns = self._netns_of(sandbox_id)
        if (NETNS_DIR / netns).exists():
            raise AlreadyExists(f"sandbox {sandbox_id} already has a network")
        mtu = max(_MTU_MIN, min([mtu_of(name) for name in find_uplinks()] or [1500]))
        async with contextlib.AsyncExitStack() as undo:
            taking = asyncio.ensure_future(self._take_subnet(sandbox_id, mtu))
            undo.push_async_callback(self._remove_taken, sandbox_id, taking)
            # Its thread cannot be cancelled, so neither is it: the undo waits for what it made.
            subnet = await asyncio.shield(taking)
            link = self._link_of(subnet)
            entry = Entry(sandbox_id, link, subnet.guest, policy, subnet.virtual_servers)
            self._state.save(entry)
            set_link(link, reaches_loopback=_reaches_loopback(entry))
            undo.pop_all()
        return Attachment(
            netns=netns,
            interface=_DEVICE,
            address=f"{subnet.guest}/30",
            gateway=subnet.gateway,
            dns=subnet.virtual_servers[: len(find_resolvers())],
            mtu=mtu,
            data={
                "kind": self.kind,
                "sandbox": sandbox_id,
                "link": link,
                "hosts": dict.fromkeys(HOST_NAMES, subnet.gateway),
            },
        )

    async def admit(self, attachment: Attachment) -> None:
        """See :meth:`Network.admit`."""
        sandbox_id = str(attachment.data.get("sandbox"))
        try:
            entry = self._state.load(sandbox_id)
            if entry is None:
                raise NotFound(f"sandbox {sandbox_id} has no network")
            await self._admit(entry, find_uplinks())
            await self._open(entry.link)
        finally:
            self._attaching.discard(sandbox_id)

    async def _open(self, link: str) -> None:
        """Switch the host's end of a link on: its packets are judged from the first one on."""

        def work() -> None:
            with devices.Netlink() as host:
                host.set_up(host.index(link))

        try:
            await in_thread(work, name="network")
        except OSError as error:
            raise NetworkError(f"cannot open a sandbox's network: {error}") from error

    async def detach(self, attachment: Attachment) -> None:
        """See :meth:`Network.detach`."""
        await self._remove(str(attachment.data.get("sandbox")), str(attachment.data.get("link")))

    async def update(self, attachment: Attachment, policy: Policy) -> None:
        """See :meth:`Network.update`."""
        check_policy(policy)
        sandbox_id = str(attachment.data.get("sandbox"))
        async with self._lock:
            old = self._state.load(sandbox_id)
            if old is None:
                raise NotFound(f"sandbox {sandbox_id} has no network")
            new = dataclasses.replace(old, policy=policy)
            loopback = _reaches_loopback(new)
            set_link(old.link, reaches_loopback=loopback or _reaches_loopback(old))
            self._state.save(new)
            servers = find_resolvers()
            script = ruleset.render_change(
                self._engine_id, old.member(servers), new.member(servers)
            )
            try:
                await self._apply(script)
            except BaseException:
                self._state.save(old)
                raise
            set_link(old.link, reaches_loopback=loopback)

    async def sweep(self, keep: Collection[str]) -> list[str]:
        """See :meth:`Network.sweep`."""
        links = await self._links()
        living = set(links.values())
        known = living | self._state.ids() | self._namespaces()
        gone = sorted(known - (set(keep) & living) - self._attaching)
        for sandbox_id in gone:
            owned = [link for link, owner in links.items() if owner == sandbox_id]
            for link in owned or [""]:
                await self._remove(sandbox_id, link)
        gone = [sandbox_id for sandbox_id in gone if sandbox_id]  # a link without an owner yet
        async with self._lock:
            if self._state.ids():
                self._forwarding.ensure(find_uplinks())
                await self._rebuild()
        await self._leave_if_last()
        return gone

    # --- names ---

    def _netns_of(self, sandbox_id: str) -> str:
        return f"tp-{self._engine_id}-{sandbox_id}"

    def _link_of(self, subnet: Subnet) -> str:
        return f"{ruleset.LINK_PREFIX}{self._engine_id}{subnet.code}"  # 12 of at most 15

    def _namespaces(self) -> set[str]:
        prefix = self._netns_of("")
        if not NETNS_DIR.is_dir():
            return set()
        names = (path.name for path in NETNS_DIR.iterdir())
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    async def _links(self) -> dict[str, str]:
        """Our links and the sandboxes that they belong to (their aliases; empty if none yet)."""
        prefix = f"{ruleset.LINK_PREFIX}{self._engine_id}"
        if not any(name.startswith(prefix) for name in interfaces()):
            return {}
        done = await process.run(["ip", "-j", "link", "show", "type", "veth"], timeout_s=_TIMEOUT_S)
        return parse_links(done.text, prefix)

    # --- making ---

    async def _take_subnet(self, sandbox_id: str, mtu: int) -> Subnet:
        """Make the namespace and a link into it whose subnet nobody else has."""
        pool = find_pool(route.destination for route in routes(ignore=_LINKS))
        await self._make_directory()
        # Opened here, in the host's namespace; the thread leaves that.
        with devices.Netlink() as host:
            try:
                return await in_thread(
                    lambda: self._make_devices(host, sandbox_id, pool, mtu=mtu), name="network"
                )
            except OSError as error:
                raise NetworkError(f"cannot make a network for {sandbox_id}: {error}") from error

    async def _remove_taken(self, sandbox_id: str, taking: asyncio.Future[Subnet]) -> None:
        """Undo :meth:`_take_subnet`, once it is over, also when we are cancelled again."""
        while not taking.done():
            with contextlib.suppress(asyncio.CancelledError, TupperError):
                await asyncio.shield(taking)
        if taking.cancelled() or taking.exception() is not None:
            return  # it has removed what it made
        await self._remove(sandbox_id, self._link_of(taking.result()))

    async def _make_directory(self) -> None:
        """The first namespace of a host also mounts their directory, as ``ip`` does it."""
        if self._has_directory:
            return
        async with self._lock:  # not twice
            if not self._has_directory and not NETNS_DIR.is_mount():
                first = self._netns_of("first")
                devices.remove_netns(first)
                try:
                    await process.run(["ip", "netns", "add", first], timeout_s=_TIMEOUT_S)
                finally:
                    devices.remove_netns(first)
            self._has_directory = True

    def _make_devices(
        self, host: devices.Netlink, sandbox_id: str, pool: int, *, mtu: int
    ) -> Subnet:
        """Runs in a thread that is then in the new namespace."""
        netns = self._netns_of(sandbox_id)
        devices.make_netns(netns)
        try:
            with (NETNS_DIR / netns).open("rb") as inside:
                for _ in range(_TRIES):
                    subnet = pick_subnet(pool)
                    if self._make_link(host, sandbox_id, subnet, mtu=mtu, netns_fd=inside.fileno()):
                        return subnet
        except BaseException:
            devices.remove_netns(netns)
            raise
        devices.remove_netns(netns)
        raise CapacityReached(f"no free subnet in {POOLS[pool]} after {_TRIES} tries")

    def _make_link(
        self, host: devices.Netlink, sandbox_id: str, subnet: Subnet, *, mtu: int, netns_fd: int
    ) -> bool:
        """Make both ends of a link; the calling thread is in the namespace of the far one.

        Returns False when the subnet is taken.
        """
        link = self._link_of(subnet)
        try:
            host.make_pair(link, peer=_DEVICE, netns_fd=netns_fd, mtu=mtu)
        except FileExistsError:
            return False
        try:
            index = host.index(link)
            try:
                host.claim(index, subnet.claim)
            except FileExistsError:
                host.delete(link)
                return False
            host.describe(index, sandbox_id)
            host.add_address(index, subnet.gateway, prefix=30)
            self._set_up_guest(subnet)
        except BaseException:
            host.delete(link)
            raise
        return True

    def _set_up_guest(self, subnet: Subnet) -> None:
        """Set up the far end of a link, in whose namespace the calling thread is."""
        with devices.Netlink() as guest:
            guest.set_up(guest.index("lo"))
            index = guest.index(_DEVICE)
            guest.set_up(index)
            guest.add_address(index, subnet.guest, prefix=30)
            guest.add_default_route(index, subnet.gateway)

    async def _admit(self, entry: Entry, uplinks: Collection[str]) -> None:
        """Let the sandbox's packets through: forwarding, our table, other firewalls.

        Those who come at the same time are let in by one of them, in one transaction: two helper
        programs for all of them instead of two for each.
        """
        self._joining.append(entry)
        try:
            async with self._lock:
                if entry not in self._joining:
                    return  # somebody has taken it along
                joining, self._joining = self._joining, []
                try:
                    await self._admit_all(joining, uplinks)
                except BaseException:
                    # It failed for us; each of the others finds out for itself.
                    self._joining += [other for other in joining if other is not entry]
                    raise
        finally:
            if entry in self._joining:
                self._joining.remove(entry)

    async def _admit_all(self, joining: Collection[Entry], uplinks: Collection[str]) -> None:
        self._is_clean = False
        guarded = self._forwarding.ensure(uplinks)
        servers = find_resolvers()
        if not servers:
            log.problem("network.no_resolver", reason="the host has no IPv4 name server")
        if servers != self._resolvers:
            # Also the others' queries must go to the new servers.
            self._resolvers = servers
            await _together(self._rebuild(), self._firewalls.ensure())
            return
        texts = [ruleset.render_add(self._engine_id, entry.member(servers)) for entry in joining]
        texts.append(ruleset.render_guard(self._engine_id, guarded))
        await _together(self._apply("".join(texts)), self._firewalls.ensure())

    async def _apply(self, script: str) -> None:
        """Run a transaction; if our table was flushed by somebody, make all of it again."""
        if not script:
            return
        try:
            await _run_nft(script)
        except ProgramFailed as error:
            log.problem("network.table_rebuilt", engine=self._engine_id, error=error.output[:200])
            await self._rebuild()

    async def _rebuild(self) -> None:
        """Make the table from what is written down, in one transaction."""
        self._may_have_table = True
        servers = self._resolvers = find_resolvers()
        members = [entry.member(servers) for entry in self._state.entries()]
        await _run_nft(
            ruleset.render_table(
                self._engine_id,
                members,
                resolvers=servers,
                guarded=self._forwarding.guarded(),
            )
        )

    # --- removing ---

    async def _remove(self, sandbox_id: str, link: str) -> None:
        """Remove all of a sandbox's network. Each step is tried; the first failure is raised."""
        failures: list[Exception] = []
        try:
            await self._expel(sandbox_id)
        except TupperError as error:
            failures.append(error)
        netns = self._netns_of(sandbox_id)
        try:
            await self._remove_devices(netns, link)
        except TupperError as error:
            failures.append(error)
        try:
            await self._leave_if_last()
        except TupperError as error:
            failures.append(error)
        left = [name for name in (link,) if name in interfaces()]
        left += [netns] if (NETNS_DIR / netns).exists() else []
        if left:
            raise NetworkError(
                f"cannot remove {' and '.join(left)} of {sandbox_id}: {failures[:1]}"
            )
        if failures:
            raise failures[0]

    async def _remove_devices(self, netns: str, link: str) -> None:
        """Remove the namespace, and with it the link.

        The kernel removes a dead namespace's devices in the background, many at once, in a few
        milliseconds; removing a link ourselves costs 40 ms and holds everybody else up. That is
        left for the case that a process still sits in the namespace.
        """
        if (NETNS_DIR / netns).exists():
            await asyncio.to_thread(devices.remove_netns, netns)
            for pause_s in _PAUSES_S:
                if link not in interfaces():
                    return
                await asyncio.sleep(pause_s)
        if link in interfaces():
            with devices.Netlink() as host:
                await asyncio.to_thread(host.delete, link)

    async def _expel(self, sandbox_id: str) -> None:
        """Take the sandbox's elements out before its subnet can be given to another.

        Deleting costs the kernel a grace period (17 ms), so those who leave at the same time are
        taken out by one of them, in one transaction.
        """
        entry = self._state.load(sandbox_id)
        self._state.remove(sandbox_id)
        if entry is None:
            return
        member = entry.member(self._resolvers or find_resolvers())
        self._leaving.append(member)
        async with self._lock:
            if member not in self._leaving:
                return
            leaving, self._leaving = self._leaving, []
            # With the last one the whole table goes, see _leave_if_last.
            if self._may_have_table and self._state.ids():
                texts = (ruleset.render_remove(self._engine_id, member) for member in leaving)
                await self._apply("".join(texts))

    async def _leave_if_last(self) -> None:
        """With the last sandbox the table, the rules in other firewalls and forwarding go."""
        async with self._lock:
            if self._state.ids() or self._is_clean:
                return
            self._resolvers = None
            await _run_nft(ruleset.render_delete_table(self._engine_id))
            self._may_have_table = False
            await self._firewalls.remove()
            # Not yet, while a link of another engine, or one that is just removed, is there.
            self._is_clean = self._forwarding.release()


def find_uplinks() -> frozenset[str]:
    """The devices by which packets of sandboxes leave the host and answers come back."""
    found = {route.interface for route in routes(ignore=_LINKS) if route.destination.prefixlen == 0}
    for address in (_ANYWHERE, *find_resolvers()):
        route = route_to(address)
        if route is not None and route.is_unicast:
            found.add(route.interface)
    return frozenset(found - {"", "lo"})


def parse_links(text: str, prefix: str) -> dict[str, str]:
    """Device names and aliases in the output of ``ip -j link``, of devices with this prefix."""
    found: dict[str, str] = {}
    for item in as_list(json.loads(text or "[]")) or ():
        fields = as_object(item) or {}
        if (name := str(fields.get("ifname"))).startswith(prefix):
            found[name] = str(fields.get("ifalias", ""))
    return found


def _reaches_loopback(entry: Entry) -> bool:
    return bool(entry.policy.allow_host_ports) or any(map(is_loopback, find_resolvers()))


async def _together(*parts: Coroutine[object, object, None]) -> None:
    """Run parts at once; if one fails the others are ended, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except* TupperError as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _run_nft(script: str) -> None:
    await process.run(["nft", "-f", "-"], stdin=script.encode(), timeout_s=_TIMEOUT_S)
