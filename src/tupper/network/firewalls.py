"""Living beside other firewalls of the host: Docker's, firewalld's, ufw's, one's own.

A packet passes the forward hook only if *every* chain there lets it. Docker and ufw set the policy
of the iptables chain FORWARD to drop, so the sandboxes' packets need one rule each way in it. Ours
name the engine's links, carry a comment with the engine's id, stand where their owner wants such
rules (DOCKER-USER if there is one), and go with the last sandbox. Nothing of theirs is changed,
and where nothing drops nothing is added. Which packets may pass is decided in our own table; these
rules only say "not a matter of yours".

Source: docs.docker.com "Packet filtering and firewalls" (DOCKER-USER); iptables(8); nft(8).
"""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from tupper.core import log, process
from tupper.core.errors import ProgramFailed
from tupper.network.ruleset import LINK_PREFIX
from tupper.protocol.connect import as_list, as_object

_TIMEOUT_S = 15.0
_LEGACY_TABLES = Path("/proc/net/ip_tables_names")
Rule = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A base chain at the forward hook that drops.

    Args:
        family, table, name: its place.
    """

    family: str
    table: str
    name: str

    @property
    def is_of_iptables(self) -> bool:
        """Whether the iptables programs own it. Native rules in it would confuse them."""
        return (self.family, self.table, self.name) == ("ip", "filter", "FORWARD")


class Firewalls:
    """The rules that one engine has in other people's chains."""

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        self._comment = f"tupper {engine_id}"

    async def ensure(self) -> None:
        """Add our rules where something would drop the sandboxes' packets."""
        dropping = [chain for chain, drops in await _forward_chains() if drops]
        for chain in dropping:
            if not chain.is_of_iptables:
                await self._ensure_native(chain)
            elif tool := _modern_tool():
                await self._ensure_iptables(tool)
        if legacy := _legacy_tool():
            listed = await _try([legacy, "-w", "5", "-S", "FORWARD"])
            if "-P FORWARD DROP" in listed:
                await self._ensure_iptables(legacy)

    async def remove(self) -> None:
        """Remove our rules wherever they are."""
        tools = [_legacy_tool()]
        for chain, _ in await _forward_chains():
            if chain.is_of_iptables:
                tools.append(_modern_tool())
            else:
                await self._remove_native(chain)
        for tool in filter(None, tools):
            for rule in await self._own_iptables_rules(tool):
                await _try([tool, "-w", "5", "-D", *rule])

    async def _ensure_iptables(self, tool: str) -> None:
        listed = await _try([tool, "-w", "5", "-S"])
        chain = "DOCKER-USER" if "-N DOCKER-USER" in listed.splitlines() else "FORWARD"
        present = [line for line in listed.splitlines() if line.startswith(f"-A {chain} ")]
        for rule in self._iptables_rules(chain):
            if not any(self._comment in line and rule[1] in line.split() for line in present):
                await process.run([tool, "-w", "5", "-I", *rule], timeout_s=_TIMEOUT_S)

    def _iptables_rules(self, chain: str) -> list[Rule]:
        links = f"{LINK_PREFIX}{self._engine_id}+"
        mark = ("-m", "comment", "--comment", self._comment, "-j", "ACCEPT")
        state = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
        return [(chain, "-o", links, *state, *mark), (chain, "-i", links, *mark)]

    async def _own_iptables_rules(self, tool: str) -> list[Rule]:
        listed = await _try([tool, "-w", "5", "-S"])
        return [
            tuple(shlex.split(line)[1:])
            for line in listed.splitlines()
            if line.startswith("-A ") and f'"{self._comment}"' in line
        ]

    async def _ensure_native(self, chain: Chain) -> None:
        if await self._own_handles(chain):
            return
        where = f"insert rule {chain.family} {chain.table} {chain.name}"
        links, comment = f'"{LINK_PREFIX}{self._engine_id}*"', f'accept comment "{self._comment}"'
        script = f"{where} oifname {links} ct state established,related {comment}\n"
        script += f"{where} iifname {links} {comment}\n"
        try:
            await process.run(["nft", "-f", "-"], stdin=script.encode(), timeout_s=_TIMEOUT_S)
        except ProgramFailed as error:
            # A table with an owner (newer firewalld) takes no rules from others.
            log.problem("network.firewall_refused", chain=chain.name, error=error.output)

    async def _remove_native(self, chain: Chain) -> None:
        for handle in await self._own_handles(chain):
            place = [chain.family, chain.table, chain.name]
            await _try(["nft", "delete", "rule", *place, "handle", str(handle)])

    async def _own_handles(self, chain: Chain) -> list[int]:
        argv = ["nft", "-j", "-a", "list", "chain", chain.family, chain.table, chain.name]
        return [
            handle
            for item in _nft_items(await _try(argv), "rule")
            if item.get("comment") == self._comment and isinstance(handle := item["handle"], int)
        ]


async def _forward_chains() -> list[tuple[Chain, bool]]:
    """The base chains at the forward hook that are not ours, and whether they drop."""
    found: list[tuple[Chain, bool]] = []
    for item in _nft_items(await _try(["nft", "-j", "list", "chains"]), "chain"):
        table = str(item.get("table"))
        if item.get("hook") != "forward" or table.startswith("tupper_"):
            continue
        chain = Chain(str(item.get("family")), table, str(item.get("name")))
        if chain.family in ("ip", "inet"):
            # firewalld's chain accepts by policy and rejects in its last rule.
            found.append((chain, item.get("policy") == "drop" or table == "firewalld"))
    return found


def _nft_items(text: str, kind: str) -> list[dict[str, object]]:
    try:
        value: object = json.loads(text) if text else {}
    except ValueError:
        return []
    items = as_list((as_object(value) or {}).get("nftables")) or ()
    inner = (as_object((as_object(item) or {}).get(kind)) for item in items)
    return [fields for fields in inner if fields is not None]


def _modern_tool() -> str | None:
    return shutil.which("iptables-nft") or shutil.which("iptables")


def _legacy_tool() -> str | None:
    """The program for the old kernel tables, if a filter table of that kind exists."""
    try:
        tables = _LEGACY_TABLES.read_text().split()
    except OSError:
        return None
    return shutil.which("iptables-legacy") if "filter" in tables else None


async def _try(argv: list[str]) -> str:
    """The output of a program, empty if it fails or is not there."""
    try:
        done = await process.run(argv, timeout_s=_TIMEOUT_S, check=False)
    except ProgramFailed:
        return ""
    return done.text if done.returncode == 0 else ""
