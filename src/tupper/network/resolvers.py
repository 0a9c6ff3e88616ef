"""Which name servers the host uses, so that sandboxes' queries can be sent there.

Guests get virtual addresses (the gateway's, and two more that exist nowhere) as name servers; the
packet filter rewrites queries to them into queries to the host's own servers. Nothing of ours runs
for that, and the guest never learns the host's configuration.

Source: resolv.conf(5); systemd-resolved(8) for its stub and for the file with the real servers.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
RESOLVED_CONF = Path("/run/systemd/resolve/resolv.conf")
_SERVERS_MAX = 3  # MAXNS of resolv.conf(5)
_STUBS = frozenset({"127.0.0.53", "127.0.0.54"})


def find_resolvers(
    resolv_conf: Path = RESOLV_CONF, resolved_conf: Path = RESOLVED_CONF
) -> tuple[str, ...]:
    """The host's IPv4 name servers, at most three; empty if it has none.

    The stub of systemd-resolved is replaced by its upstream servers: it answers only the host.
    Other servers on loopback (such as dnsmasq) are returned as they are.
    """
    servers = parse_resolvers(_read(resolv_conf))
    if _STUBS.intersection(servers):
        upstream = parse_resolvers(_read(resolved_conf))
        own = [server for server in servers if server not in _STUBS]
        servers = tuple(dict.fromkeys([*own, *upstream])) or servers
    return servers[:_SERVERS_MAX]


def parse_resolvers(text: str) -> tuple[str, ...]:
    """The IPv4 ``nameserver`` lines of a ``resolv.conf``, in order, each once."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                address = ipaddress.ip_address(words[1].partition("%")[0])
            except ValueError:
                continue
            if isinstance(address, ipaddress.IPv4Address):
                # 0.0.0.0 means this host to the C library.
                found["127.0.0.1" if address.is_unspecified else str(address)] = None
    return tuple(found)


def is_loopback(server: str) -> bool:
    """Whether the server is on the host's loopback."""
    return ipaddress.IPv4Address(server).is_loopback


def _read(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
