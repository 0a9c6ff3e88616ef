"""Choosing a subnet for a sandbox. Pure; a choice is only taken once its link exists.

Each sandbox has a /30 out of one of a few ranges that people rarely use; a range that the host has
routes into is passed over. Choices are random, and taken by giving the link an alternative name
that says the subnet: device names are unique on a host, so two engines, tasks or processes can
never hold the same one, and there is no moment between looking and taking.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

POOLS = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "10.231.0.0/16",
        "10.173.0.0/16",
        "172.29.0.0/16",
        "198.18.0.0/16",
        "100.107.0.0/16",
    )
)
_STEP = 4  # addresses of a /30
# The last /30 of each range holds no sandbox: its addresses are virtual name servers.
_SLOTS = 2**14 - 1


@dataclass(frozen=True, slots=True)
class Subnet:
    """One /30.

    Args:
        pool: index into ``POOLS``.
        slot: which /30 of it.
    """

    pool: int
    slot: int

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The /30 itself."""
        base = int(POOLS[self.pool].network_address) + self.slot * _STEP
        return ipaddress.IPv4Network((base, 30))

    @property
    def gateway(self) -> str:
        """The host's end."""
        return str(self.network.network_address + 1)

    @property
    def guest(self) -> str:
        """The sandbox's address."""
        return str(self.network.network_address + 2)

    @property
    def virtual_servers(self) -> tuple[str, str, str]:
        """Addresses that the guest may use as name servers; the first is the gateway."""
        last = POOLS[self.pool].broadcast_address
        return self.gateway, str(last - 2), str(last - 1)

    @property
    def code(self) -> str:
        """Five hexadecimal digits that name it in a device's name."""
        return f"{self.pool:x}{self.slot:04x}"

    @property
    def claim(self) -> str:
        """The alternative device name that takes it."""
        return f"tupper-{self.network.network_address}"


def find_pool(taken: Iterable[ipaddress.IPv4Network]) -> int:
    """The first range that the host's routes leave alone.

    Args:
        taken: destinations of the host's routes; default routes are ignored. If every range is
            in use by something, the one whose user is the widest is shared: more exact routes win.
    """
    widths: list[int] = []
    networks = [network for network in taken if network.prefixlen > 0]
    for pool in POOLS:
        overlapping = [network.prefixlen for network in networks if network.overlaps(pool)]
        widths.append(max(overlapping, default=0))
    return widths.index(min(widths))


def pick_subnet(pool: int) -> Subnet:
    """Any subnet of a range."""
    return Subnet(pool, secrets.randbelow(_SLOTS))
