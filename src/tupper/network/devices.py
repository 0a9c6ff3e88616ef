"""Namespaces and links, by the kernel's own interface.

``ip`` costs three to five milliseconds a call, and three calls stand between a create and its
machine; what they ask the kernel for takes less than one. Everything here blocks, for as long as
somebody else changes networks, so it is called in a thread.

Source: netlink(7), rtnetlink(7), linux/if_link.h, linux/rtnetlink.h, drivers/net/veth.c; what
``ip netns add`` does: ip-netns(8).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from tupper.core import kernel

NETNS_DIR = Path("/run/netns")
_TIMEOUT_S = 30.0
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _NEWROUTE, _NEWLINKPROP = 16, 17, 18, 20, 24, 108
_ERROR = 2  # NLMSG_ERROR, also the acknowledgement
_IFNAME, _MTU, _LINKINFO, _IFALIAS, _AF_SPEC, _NET_NS_FD = 3, 4, 18, 20, 26, 28
_PROP_LIST, _ALT_IFNAME = 52, 53
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDR_GEN_MODE, _ADDR_GEN_NONE = 8, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_OIF, _RTA_GATEWAY = 4, 5
_TABLE_MAIN, _PROTOCOL_BOOT, _UNICAST = 254, 3, 1
_NESTED = 0x8000
_UP = 1


def _attribute(kind: int, data: bytes) -> bytes:
    """``struct nlattr`` with its payload, padded to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _link(index: int = 0, flags: int = 0) -> bytes:
    """``struct ifinfomsg``."""
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


class Netlink:
    """Requests about the network namespace of the thread that made this object."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.settimeout(_TIMEOUT_S)
        self._sequence = 0

    def __enter__(self) -> Self:
        """Itself; the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close it."""
        self._socket.close()

    def _ask(self, kind: int, body: bytes, flags: int = 0) -> bytes:
        """Send one request.

        Returns:
            The message that came before the acknowledgement, if any.

        Raises:
            OSError: the kernel refused, with its number.
        """
        self._sequence += 1
        head = struct.pack(
            "=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._sequence, 0
        )
        self._socket.send(head + body)
        found = b""
        while True:
            data = self._socket.recv(65536)
            while len(data) >= 16:
                size, answer, _, sequence, _ = struct.unpack_from("=IHHII", data)
                message, data = data[16:size], data[(size + 3) & ~3 :]
                if sequence != self._sequence:
                    continue
                if answer != _ERROR:
                    found = message
                elif number := -int(struct.unpack_from("=i", message)[0]):
                    raise OSError(number, os.strerror(number))
                else:
                    return found

    def index(self, name: str) -> int:
        """The number of a device."""
        message = self._ask(_GETLINK, _link() + _text(_IFNAME, name))
        return int(struct.unpack_from("=BxHi", message)[2])

    def make_pair(self, name: str, *, peer: str, netns_fd: int, mtu: int) -> None:
        """A link, one end here, the other in a namespace.

        Errors:
            OSError with EEXIST: there is a device of this name.
        """
        end = _link() + _text(_IFNAME, peer) + _number(_MTU, mtu) + _number(_NET_NS_FD, netns_fd)
        info = _text(_INFO_KIND, "veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, end))
        body = _link() + _text(_IFNAME, name) + _number(_MTU, mtu) + _attribute(_LINKINFO, info)
        self._ask(_NEWLINK, body, _CREATE | _EXCL)

    def claim(self, index: int, alternative: str) -> None:
        """Give a device another name.

        Errors:
            OSError with EEXIST: somebody has it.
        """
        names = _attribute(_PROP_LIST | _NESTED, _text(_ALT_IFNAME, alternative))
        self._ask(_NEWLINKPROP, _link(index) + names, _CREATE | _EXCL)

    def describe(self, index: int, alias: str) -> None:
        """Write down what a device says about itself."""
        self._ask(_NEWLINK, _link(index) + _attribute(_IFALIAS, alias.encode()))

    def set_up(self, index: int, *, ipv6: bool = False) -> None:
        """Switch a device on.

        Args:
            index: of the device.
            ipv6: whether it makes itself an address.
        """
        body = _link(index, _UP)
        if not ipv6 and Path("/proc/sys/net/ipv6").exists():
            mode = _attribute(_ADDR_GEN_MODE, bytes([_ADDR_GEN_NONE]))
            body += _attribute(_AF_SPEC, _attribute(socket.AF_INET6, mode))
        self._ask(_NEWLINK, body)

    def add_address(self, index: int, address: str, *, prefix: int) -> None:
        """Give a device an IPv4 address."""
        packed = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        self._ask(_NEWADDR, body, _CREATE | _EXCL)

    def add_default_route(self, index: int, gateway: str) -> None:
        """Everything without a better route goes to this IPv4 address."""
        kinds = (_TABLE_MAIN, _PROTOCOL_BOOT, 0, _UNICAST)
        body = struct.pack("=8BI", socket.AF_INET, 0, 0, 0, *kinds, 0)
        body += _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)) + _number(_RTA_OIF, index)
        self._ask(_NEWROUTE, body, _CREATE | _EXCL)

    def delete(self, name: str) -> None:
        """Remove a device, and its other end. It is fine if it is gone."""
        try:
            self._ask(_DELLINK, _link() + _text(_IFNAME, name))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise


def make_netns(name: str) -> None:
    """A network namespace with a name, as ``ip netns`` makes them.

    Changes the network namespace of the calling thread.

    Errors:
        FileExistsError: there is one.
    """
    path = NETNS_DIR / name
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
    try:
        kernel.unshare(kernel.CLONE_NEWNET)
        kernel.bind("/proc/thread-self/ns/net", path)
    except BaseException:
        path.unlink()
        raise


def remove_netns(name: str) -> None:
    """Take the name away; the namespace goes with its last process. Idempotent."""
    path = NETNS_DIR / name
    while kernel.unmount(path):
        pass
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
