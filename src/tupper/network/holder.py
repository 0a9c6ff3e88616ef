"""Networks for an engine that is an ordinary user: user namespaces and pasta.

Each sandbox has two network namespaces in a user namespace of its own. The *outer* one has pasta's
device (pasta turns its packets into ordinary sockets of the user) and the same packet filter that
root's engines have on the host; the *inner* one has only the far end of a link into the outer one
and is the guest's. So the rules are out of the guest's reach, and its refusals as quick.

Two processes hold the namespaces (``sleep``), pasta is the third. They outlive this process; each
is known by pid and start time, carries a mark (in its environment, pasta in its arguments) for the
case that we die before that is written down, and is ended by pid.

Source: user_namespaces(7), unshare(1), nsenter(1), pasta(1) of 2023-03.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tupper.core import log, process
from tupper.core.backend import Attachment
from tupper.core.errors import (
    AlreadyExists,
    InvalidArgument,
    NetworkError,
    NotFound,
    ProgramFailed,
    TupperError,
    Unsupported,
)
from tupper.core.liveness import is_alive, kill_and_wait, start_ticks
from tupper.core.paths import make_private
from tupper.core.userns import OWN_MOUNTS, find_obstacle
from tupper.network import ruleset
from tupper.network.policy import HOST_NAMES, Network, Policy, check_id, check_policy
from tupper.network.resolvers import find_resolvers, is_loopback
from tupper.network.routes import local_addresses, mtu_of, route_to
from tupper.network.state import Entry, State
from tupper.network.subnets import Subnet
from tupper.protocol.connect import as_list, as_object

if TYPE_CHECKING:
    import subprocess  # noqa: TID251 - for its type

_DEVICE = "eth0"
_TAP = "tap0"
_TIMEOUT_S = 30.0
_READY_S = 10.0
_MARK = "TUPPER_NETWORK"
_SUBNET = Subnet(0, 0)  # the namespaces are private, so every sandbox may have the same one
_DNS_FORWARD = "10.231.255.250"  # pasta sends what comes here to the host's name server
_ENTER = ("nsenter", "--preserve-credentials", "-U", "-n")

# pasta takes only connections from loopback to the host's ports. This is the outer namespace's
# loopback; on the host the connection comes from pasta, so from the host's.
#
# pasta of 2023-03 sends segments without any flag, which belong to no connection for the kernel's
# tracking, so they are not translated and the namespace itself would answer them by a reset.
_FOR_PASTA = f"""table ip tupper_pasta {{
  chain strays {{
    type filter hook prerouting priority 0; policy accept;
    iifname "{_TAP}" ct state invalid drop
  }}
  chain input {{
    type nat hook input priority 100; policy accept;
    iifname "{ruleset.LINK_PREFIX}*" ip daddr 127.0.0.1 snat to 127.0.0.1
  }}
}}
"""


async def probe_user_network() -> str | None:
    """Why an ordinary user cannot have networks on this host; None if he can."""
    obstacle = await find_obstacle()
    return None if obstacle is None else obstacle.reason


class Holders(Network):
    """The networks of one engine that is an ordinary user.

    Args:
        engine_id: five lower-case letters or digits.
        data_dir: the engine's data directory.
    """

    kind: ClassVar[str] = "holder"

    def __init__(self, engine_id: str, data_dir: Path) -> None:
        if not re.fullmatch("[a-z0-9]{5}", engine_id):
            raise InvalidArgument(f"engine id {engine_id!r} is not five letters or digits")
        self._engine_id = engine_id
        self._link = f"{ruleset.LINK_PREFIX}{engine_id}{_SUBNET.code}"
        self._state = State(data_dir / "network")
        self._pids = data_dir / "network-pids"
        self._attaching: set[str] = set()  # not for a sweep that comes in between
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    async def prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        """See :meth:`Network.prepare`."""
        check_id(sandbox_id)
        check_policy(policy)
        self._attaching.add(sandbox_id)
        try:
            return await self._prepare(sandbox_id, policy)
        finally:
            self._attaching.discard(sandbox_id)

    async def admit(self, attachment: Attachment) -> None:
        """See :meth:`Network.admit`. The rules are there before the guest's namespace has a way."""

    async def _prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        if sandbox_id in self._state.ids():
            raise AlreadyExists(f"sandbox {sandbox_id} already has a network")
        obstacle = await find_obstacle()
        if obstacle is not None:
            raise NetworkError(
                f"no network for an ordinary user on this host: {obstacle.reason}",
                hint=obstacle.remedy or None,
            )
        entry = Entry(sandbox_id, self._link, _SUBNET.guest, policy, _SUBNET.virtual_servers)
        mtu = _uplink_mtu()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._remove, sandbox_id)
            make_private(self._pids)
            self._state.save(entry)
            outer = await self._hold(sandbox_id, [])
            inner_join = ["nsenter", "--preserve-credentials", "-U", "-t", str(outer)]
            inner = await self._hold(sandbox_id, inner_join)
            pasta = await self._start_pasta(sandbox_id, outer, policy, mtu)
            pids = {"outer": outer, "inner": inner, "pasta": pasta}
            self._save_pids(sandbox_id, pids)
            await self._set_up(entry, outer, inner, mtu)
            undo.pop_all()
        return Attachment(
            holder_pid=inner,
            interface=_DEVICE,
            address=f"{_SUBNET.guest}/30",
            gateway=_SUBNET.gateway,
            dns=_SUBNET.virtual_servers[: len(_servers())],
            mtu=mtu,
            data={
                "kind": self.kind,
                "sandbox": sandbox_id,
                "hosts": dict.fromkeys(HOST_NAMES, _SUBNET.gateway),
            },
        )

    async def detach(self, attachment: Attachment) -> None:
        """See :meth:`Network.detach`."""
        await self._remove(str(attachment.data.get("sandbox")))

    async def update(self, attachment: Attachment, policy: Policy) -> None:
        """See :meth:`Network.update`. The host's ports are fixed when the network is made."""
        check_policy(policy)
        sandbox_id = str(attachment.data.get("sandbox"))
        old = self._state.load(sandbox_id)
        outer = self._load_pids(sandbox_id).get("outer", (0, 0))
        if old is None or not is_alive(*outer):
            raise NotFound(f"sandbox {sandbox_id} has no network")
        if set(policy.allow_host_ports) - set(old.policy.allow_host_ports):
            raise Unsupported("the network of an ordinary user", "opening more ports of the host")
        new = dataclasses.replace(old, policy=policy)
        servers = _servers()
        script = ruleset.render_change(self._engine_id, old.member(servers), new.member(servers))
        if script:
            await _run_inside(outer[0], ["nft", "-f", "-"], script)
        self._state.save(new)

    async def sweep(self, keep: Collection[str]) -> list[str]:
        """See :meth:`Network.sweep`."""
        marked = {sandbox for sandbox, _ in self._marked()}
        gone: list[str] = []
        known = marked | self._state.ids() | self._ids_of_pids()
        for sandbox_id in sorted(known - self._attaching):
            pids = self._load_pids(sandbox_id).values()
            if sandbox_id in keep and pids and all(is_alive(*pid) for pid in pids):
                continue
            await self._remove(sandbox_id)
            gone.append(sandbox_id)
        return gone

    # --- making ---

    async def _hold(self, sandbox_id: str, join: Sequence[str]) -> int:
        """Start a process that sits in new namespaces; returns once it does."""
        user = [] if join else ["-U", "--map-root-user", "--map-auto"]
        argv = [*join, "unshare", *user, "--net", *OWN_MOUNTS]
        env = process.minimal_env(**{_MARK: self._mark(sandbox_id)})
        holder = process.spawn_detached([*argv, "sleep", "infinity"], env=env)
        self._children[holder.pid] = holder
        deadline = time.monotonic() + _READY_S
        # The maps are complete when unshare has become sleep. Nothing tells, so look.
        while _name_of(holder.pid) != "sleep":
            if holder.poll() is not None:
                raise NetworkError(f"{argv[0]} ended with {holder.returncode}")
            if time.monotonic() > deadline:
                raise NetworkError(f"no namespaces within {_READY_S:g} s")
            await asyncio.sleep(0.002)
        return holder.pid

    async def _start_pasta(self, sandbox_id: str, outer: int, policy: Policy, mtu: int) -> int:
        """Connect the outer namespace; pasta goes into the background once it works."""
        pid_file = self._pid_file(sandbox_id)
        ports = ",".join(map(str, sorted(set(policy.allow_host_ports)))) or "none"
        argv = ["pasta", "--config-net", "--no-map-gw", "-q", "-4", "-I", _TAP, "-m", str(mtu)]
        argv += ["-t", "none", "-u", "none", "-T", ports, "-U", "none"]
        if _DNS_FORWARD in _servers():
            argv += ["--dns-forward", _DNS_FORWARD]
        argv += ["-P", str(pid_file), str(outer)]
        env = process.minimal_env(**{_MARK: self._mark(sandbox_id)})
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123, ASYNC230
            await process.run(argv, timeout_s=_TIMEOUT_S, env=env, output=nothing)
        return int(pid_file.read_text())

    async def _set_up(self, entry: Entry, outer: int, inner: int, mtu: int) -> None:
        link = entry.link
        lines = [
            f"link add name {link} mtu {mtu} type veth peer name {_DEVICE} mtu {mtu} netns {inner}",
            f"address add {_SUBNET.gateway}/30 dev {link}",
            f"link set dev {link} addrgenmode none up",
            "link set dev lo up",
        ]
        conf = "/proc/sys/net/ipv4/conf"
        switches = f"echo 1 > {conf}/all/forwarding && echo 1 > {conf}/{link}/route_localnet"
        await _run_inside(outer, ["sh", "-c", f"ip -batch - && {switches}"], "\n".join(lines))
        servers = _servers()
        table = ruleset.render_table(
            self._engine_id, [entry.member(servers)], resolvers=servers, own=local_addresses()
        )
        guest = [
            "link set dev lo up",
            f"link set dev {_DEVICE} addrgenmode none up",
            f"address add {_SUBNET.guest}/30 dev {_DEVICE}",
            f"route add default via {_SUBNET.gateway}",
        ]
        await _run_inside(outer, ["nft", "-f", "-"], table + _FOR_PASTA)
        await _run_inside(inner, ["ip", "-batch", "-"], "\n".join(guest))

    # --- remembering and removing ---

    def _mark(self, sandbox_id: str) -> str:
        return f"{self._engine_id}/{sandbox_id}"

    def _pid_file(self, sandbox_id: str) -> Path:
        return self._pids / f"{sandbox_id}.pasta"

    def _save_pids(self, sandbox_id: str, pids: Mapping[str, int]) -> None:
        known = {name: [pid, start_ticks(pid) or 0] for name, pid in pids.items()}
        (self._pids / f"{sandbox_id}.json").write_text(json.dumps(known))

    def _load_pids(self, sandbox_id: str) -> dict[str, tuple[int, int]]:
        try:
            text = (self._pids / f"{sandbox_id}.json").read_text()
            fields = as_object(json.loads(text)) or {}
            pairs = {name: as_list(value) or [] for name, value in fields.items()}
            return {name: (int(str(pid)), int(str(t))) for name, (pid, t) in pairs.items()}
        except (OSError, ValueError):
            return {}

    def _ids_of_pids(self) -> set[str]:
        return {path.stem for path in self._pids.glob("*.*")}

    def _marked(self) -> list[tuple[str, int]]:
        """(sandbox, pid) of the living processes that carry our mark.

        pasta hides its environment, so it is known by the pid file in its arguments.
        """
        start = f"{_MARK}={self._engine_id}/".encode()
        pid_files = os.fsencode(self._pids) + b"/"
        found: list[tuple[str, int]] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            words = _words_of(entry / "environ")
            names = [os.fsdecode(word[len(start) :]) for word in words if word.startswith(start)]
            arguments = _words_of(entry / "cmdline")
            if arguments and arguments[0].endswith(b"pasta"):
                files = [Path(os.fsdecode(w)) for w in arguments if w.startswith(pid_files)]
                names += [file.stem for file in files]
            found.extend((name, int(entry.name)) for name in dict.fromkeys(names))
        return found

    async def _remove(self, sandbox_id: str) -> None:
        """End the processes, pasta first; the namespaces and all in them go with the last."""
        known = dict.fromkeys(self._load_pids(sandbox_id).values())
        for sandbox, pid in self._marked():
            if sandbox == sandbox_id and (ticks := start_ticks(pid)) is not None:
                known[pid, ticks] = None
        left = [pid for pid, ticks in known if not await kill_and_wait(pid, ticks)]
        for pid, _ in known:
            if child := self._children.pop(pid, None):
                child.poll()  # so that no zombie stays behind
        if left:
            raise NetworkError(f"cannot end {left} of the network of {sandbox_id}")
        for path in self._pids.glob(f"{sandbox_id}.*"):
            path.unlink(missing_ok=True)
        self._state.remove(sandbox_id)
        log.event("network.removed", sandbox=sandbox_id, processes=len(known))


def _words_of(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:
        return []


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _servers() -> tuple[str, ...]:
    """The host's name servers as the outer namespace reaches them.

    One on the host's loopback is reached through pasta, as the only one: pasta gives the answers
    of the host's first server the address of its forwarder, whoever was asked.
    """
    servers = find_resolvers()
    return (_DNS_FORWARD,) if any(map(is_loopback, servers)) else servers


def _uplink_mtu() -> int:
    route = route_to("1.1.1.1")
    return mtu_of(route.interface) if route is not None and route.interface else 1500


async def _run_inside(pid: int, argv: Sequence[str], text: str) -> None:
    command = [*_ENTER, "-t", str(pid), "--", *argv]
    try:
        await process.run(command, stdin=text.encode() + b"\n", timeout_s=_TIMEOUT_S)
    except ProgramFailed as error:
        raise NetworkError(f"cannot set up a network: {error.output}", hint=error.hint) from error
    except TupperError as error:
        raise NetworkError(f"cannot set up a network: {error}") from error
