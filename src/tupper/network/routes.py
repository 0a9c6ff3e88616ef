"""Questions to the kernel's routing, asked over rtnetlink: no process, no parsing of text.

Everything is read from the network namespace of the calling thread.

Source: rtnetlink(7), netlink(7); linux/rtnetlink.h for the numbers.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_RTA_DST, _RTA_OIF = 1, 4
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_TABLE_LOCAL = 255
_SIOCGIFMTU = 0x8921
_OIF_KIND = struct.pack("=H", _RTA_OIF)
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")


@dataclass(frozen=True, slots=True)
class Route:
    """A route.

    Args:
        destination: which addresses it is for.
        interface: where they leave; empty if that is not one device.
        is_unicast: False for local, unreachable, blackhole and the like.
    """

    destination: ipaddress.IPv4Network
    interface: str
    is_unicast: bool


def route_to(address: str) -> Route | None:
    """The route that a packet from this host to an IPv4 address takes; None if there is none."""
    body = _ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0)
    body += _attribute(_RTA_DST, ipaddress.IPv4Address(address).packed)
    try:
        for kind, payload in _ask(_RTM_GETROUTE, body, dump=False):
            if kind == _RTM_NEWROUTE:
                return _parse_route(payload)
    except OSError:
        return None
    return None


def routes(*, ignore: re.Pattern[str]) -> list[Route]:
    """All IPv4 routes of all tables but ``local``.

    Args:
        ignore: devices whose routes are left out, by the beginning of their names. They are not
            even parsed, as there is one for each sandbox.
    """
    ignored: dict[bytes, bool] = {}
    body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
    found: list[Route] = []
    for kind, payload in _ask(_RTM_GETROUTE, body, dump=True):
        if kind != _RTM_NEWROUTE or payload[4] == _TABLE_LOCAL:
            continue
        leaves_by = next(
            (a[4:8] for a in _raw_attributes(payload[_ROUTE.size :]) if a[2:4] == _OIF_KIND), b""
        )
        if leaves_by not in ignored:
            name = _name_of(struct.unpack("=i", leaves_by)[0]) if leaves_by else ""
            ignored[leaves_by] = bool(ignore.match(name))
        if not ignored[leaves_by]:
            found.append(_parse_route(payload))
    return found


def _raw_attributes(data: bytes) -> Iterator[bytes]:
    while len(data) >= 4 and (size := int.from_bytes(data[:2], sys.byteorder)) >= 4:
        yield data[:size]
        data = data[(size + 3) & ~3 :]


def local_addresses() -> list[str]:
    """The host's own IPv4 addresses."""
    body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
    found = [
        _parse_route(payload)
        for kind, payload in _ask(_RTM_GETROUTE, body, dump=True)
        if kind == _RTM_NEWROUTE and payload[4] == _TABLE_LOCAL and payload[7] == _RTN_LOCAL
    ]
    return sorted({str(route.destination.network_address) for route in found})


def interfaces() -> list[str]:
    """The names of all devices.

    Not by ``socket.if_nameindex``: that waits for whoever changes networks just now, some
    milliseconds, and holds all threads of this process up meanwhile.
    """
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines]


def mtu_of(interface: str) -> int:
    """A device's MTU in bytes; 1500 if it is gone. Source: netdevice(7)."""
    request = struct.pack("16si12x", interface.encode(), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFMTU, request)
        except OSError:
            return 1500
    mtu: int = struct.unpack_from("16si", answer)[1]
    return mtu


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if size < 4:
            return
        yield kind & 0x3FFF, data[4:size]
        data = data[(size + 3) & ~3 :]


def _parse_route(payload: bytes) -> Route:
    prefix, kind = payload[1], payload[7]
    destination, interface = b"\0\0\0\0", ""
    for attribute, data in _attributes(payload[_ROUTE.size :]):
        if attribute == _RTA_DST:
            destination = data
        elif attribute == _RTA_OIF:
            interface = _name_of(struct.unpack("=i", data)[0])
    network = ipaddress.IPv4Network((destination, prefix), strict=False)
    return Route(network, interface, kind == _RTN_UNICAST)


def _name_of(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return ""


def _ask(kind: int, body: bytes, *, dump: bool) -> Iterator[tuple[int, bytes]]:
    flags = _NLM_F_REQUEST | (_NLM_F_DUMP if dump else 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(2)
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data = sock.recv(1 << 18)
            while len(data) >= _HEADER.size:
                size, found, _, _, _ = _HEADER.unpack_from(data)
                payload, data = data[_HEADER.size : size], data[(size + 3) & ~3 :]
                if found == _NLMSG_DONE:
                    return
                if found == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, os.strerror(number))
                yield found, payload
            if not dump:
                return
