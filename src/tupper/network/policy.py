"""What a sandbox may reach, and the small interface behind which networks are made.

A policy is judged in this order, E2B's: an allowed address, then a denied one, then the default
(``internet``). What is built in comes before all of it and cannot be opened: the host itself,
private, link-local, carrier, multicast and metadata ranges, and other sandboxes. The one exception
is ``allow_host_ports``, TCP ports of the host, reached at the gateway's address.

A policy whose default is closed has no name service: a resolver would carry data out.
"""

from __future__ import annotations

import abc
import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tupper.core.backend import Attachment
from tupper.core.errors import InvalidArgument

# Never reachable, whatever the policy says. Source: the IANA special-purpose address registry;
# 169.254/16 and 100.64/10 hold the metadata services of the large clouds.
BUILT_IN_DENIALS = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
HOST_NAMES = ("host.tupper.internal", "host.docker.internal")
_EVERYTHING = ipaddress.IPv4Network("0.0.0.0/0")
_CIDRS_MAX = 1000
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a sandbox may reach.

    Args:
        internet: the default for what no list names.
        allow_out: addresses or CIDRs that are reachable although denied or although not internet.
        deny_out: addresses or CIDRs that are not.
        allow_host_ports: TCP ports of the host (on its loopback, or on all its addresses).
    """

    internet: bool = True
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    allow_host_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A policy, checked and brought into the form that a packet filter wants.

    Args:
        is_open: what happens to addresses in neither list.
        allowed: CIDRs that do not overlap each other.
        denied: likewise.
        host_ports: sorted.
    """

    is_open: bool
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    host_ports: tuple[int, ...] = field(default=())


def check_id(sandbox_id: str) -> None:
    """Refuse an id that would mean something in a path or in another program's input.

    Errors:
        InvalidArgument: not 1 to 64 ASCII letters, digits, underscores or hyphens.
    """
    if not _ID.fullmatch(sandbox_id):
        raise InvalidArgument(f"sandbox id {sandbox_id[:100]!r} cannot name a network")


def check_policy(policy: Policy) -> Verdicts:
    """Check a policy.

    Errors:
        InvalidArgument: something that is not an IPv4 address or CIDR (names are not supported
        yet; an IPv6 denial is fine, there is no IPv6 inside), a port outside 1 to 65535, or more
        than 1000 entries.
    """
    allowed = _parse_all(policy.allow_out, "invalid allowed address")
    denied = _parse_all(policy.deny_out, "invalid denied CIDR")
    for port in policy.allow_host_ports:
        if not 1 <= port <= 65535:
            raise InvalidArgument(f"invalid host port {port}: not from 1 to 65535")
    is_open = _EVERYTHING in allowed or (policy.internet and _EVERYTHING not in denied)
    return Verdicts(
        is_open=is_open,
        allowed=_collapse(allowed),
        denied=_collapse(denied),
        host_ports=tuple(sorted(set(policy.allow_host_ports))),
    )


def _parse_all(texts: Iterable[str], complaint: str) -> list[ipaddress.IPv4Network]:
    found: list[ipaddress.IPv4Network] = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise InvalidArgument(
                f"{complaint} {text[:100]}",
                hint="give an IPv4 address or a CIDR such as 203.0.113.0/24",
            ) from None
        if isinstance(network, ipaddress.IPv4Network):
            found.append(network)
        elif complaint.startswith("invalid allowed"):
            raise InvalidArgument(f"{complaint} {text}: there is no IPv6 in a sandbox")
        if len(found) > _CIDRS_MAX:
            raise InvalidArgument(f"more than {_CIDRS_MAX} addresses in one list")
    return found


def _collapse(networks: Iterable[ipaddress.IPv4Network]) -> tuple[str, ...]:
    # 0.0.0.0/0 lives in ``is_open``; intervals in one set of a packet filter may not overlap.
    rest = [network for network in networks if network != _EVERYTHING]
    return tuple(str(network) for network in ipaddress.collapse_addresses(rest))


class Network(abc.ABC):
    """Makes and removes the networks of one engine's sandboxes."""

    kind: ClassVar[str]

    async def attach(self, sandbox_id: str, policy: Policy) -> Attachment:
        """Make a network for a sandbox and open it: :meth:`prepare` and :meth:`admit`.

        On failure nothing is left. Raises what these two raise.
        """
        attachment = await self.prepare(sandbox_id, policy)
        try:
            await self.admit(attachment)
        except BaseException:
            await self.detach(attachment)
            raise
        return attachment

    @abc.abstractmethod
    async def prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        """Make a network that is complete for the guest. On failure nothing is left.

        No packet leaves it before :meth:`admit`, so a guest may be started meanwhile.
        Attachment.data["hosts"] maps names to addresses for the guest's ``/etc/hosts``.

        Errors:
            InvalidArgument: the policy. AlreadyExists: this sandbox has a network. NetworkError:
            the host refused. CapacityReached: no free subnet.
        """

    @abc.abstractmethod
    async def admit(self, attachment: Attachment) -> None:
        """Judge a prepared network's packets from now on, and let them through.

        Errors:
            NetworkError: the host refused. NotFound: the network is gone.
        """

    @abc.abstractmethod
    async def detach(self, attachment: Attachment) -> None:
        """Remove a network. Idempotent; afterwards nothing of it is left."""

    @abc.abstractmethod
    async def update(self, attachment: Attachment, policy: Policy) -> None:
        """Replace the policy at once, for connections that are open too.

        Errors:
            InvalidArgument: the policy; the old one stays. NotFound: the network is gone.
        """

    @abc.abstractmethod
    async def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove every network of this engine whose sandbox is not in ``keep``.

        Also repairs what was taken from the living ones (rules that somebody flushed).

        Returns:
            The ids of the sandboxes whose networks were removed.
        """
