"""The guest's network device: a TAP, bridged with the device of the sandbox's own namespace.

The network layer has made a namespace with one device, the far end of a link whose near end it
judges. A guest with a kernel of its own speaks Ethernet, so its frames go through a bridge onto
that link, and the address moves from the device into the guest. The TAP goes when QEMU ends, the
bridge with the namespace.

Source: Linux, Documentation/networking/tuntap.rst; linux/if_tun.h; ip-link(8).
"""

from __future__ import annotations

import fcntl
import os
import struct

from tupper.core.backend import Attachment
from tupper.core.process import run_sync

NAME = "tap0"
_BRIDGE = "br0"
_DEVICE = "/dev/net/tun"
_SET_INTERFACE = 0x400454CA  # TUNSETIFF
_TAP, _NO_PACKET_INFO, _HEADERS = 0x0002, 0x1000, 0x4000
_TIMEOUT_S = 10.0


def open_tap() -> int:
    """A descriptor of a new TAP in the namespace of the calling thread.

    Raises:
        OSError: the host has no such devices.
    """
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        flags = _TAP | _NO_PACKET_INFO | _HEADERS
        fcntl.ioctl(device, _SET_INTERFACE, struct.pack("16sH22x", NAME.encode(), flags))
    except BaseException:
        os.close(device)
        raise
    return device


def connect(attachment: Attachment, *, prefix: tuple[str, ...] = (), make: bool = False) -> None:
    """Bridge the TAP with the sandbox's device.

    Args:
        attachment: the network.
        prefix: a command line that enters its namespace; empty where the thread is in it.
        make: whether the TAP is made first, for a QEMU that opens it by its name.

    Raises:
        ProgramFailed: the kernel refused.
    """
    argv = [*prefix, "ip", "-batch", "-"]
    text = render(attachment, make=make)
    run_sync(argv, stdin=text.encode(), timeout_s=_TIMEOUT_S)


def disconnect(*, prefix: tuple[str, ...] = ()) -> None:
    """Remove what :func:`connect` has made, as far as it is there.

    Args:
        prefix: as there.
    """
    text = f"link del {_BRIDGE}\nlink del {NAME}\n"
    argv = [*prefix, "ip", "-force", "-batch", "-"]
    run_sync(argv, stdin=text.encode(), timeout_s=_TIMEOUT_S, check=False)


def render(attachment: Attachment, *, make: bool) -> str:
    """What ``ip`` is told. Pure."""
    device, mtu = attachment.interface, attachment.mtu
    lines = [
        f"tuntap add dev {NAME} mode tap vnet_hdr" if make else "",
        f"link add {_BRIDGE} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        f"address flush dev {device}",
        f"link set {device} master {_BRIDGE}",
        f"link set {NAME} mtu {mtu} master {_BRIDGE} addrgenmode none up",
        f"link set {_BRIDGE} addrgenmode none up",
    ]
    return "".join(f"{line}\n" for line in lines if line)
