"""What E2B's ``network`` object says, on create and on a change. No I/O.

Source: E2B wire notes, 4.10.
"""

from __future__ import annotations

import re

from tupper.core.errors import InvalidArgument
from tupper.core.sandbox import Ingress
from tupper.protocol.fields import Fields
from tupper.protocol.unsupported import NotYet

ALL_TRAFFIC = "0.0.0.0/0"

_EGRESS = ("allowOut", "denyOut", "rules", "egressProxy", "dnsServers")
_INGRESS = ("allowPublicTraffic", "maskRequestHost", "httpsPorts")
_NOT_YET = {
    "rules": "headers of requests are not changed on their way out",
    "egressProxy": "there is no proxy on the way out",
    "dnsServers": "name servers are the host's",
}

# A domain, perhaps with ``*.``: its last label has a letter, which no address has.
_NAME = re.compile(r"(\*\.)?([A-Za-z0-9_-]+\.)*[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9-]*\.?")

Reach = tuple[tuple[str, ...], tuple[str, ...]]
"""What is allowed, and what is denied."""


def parse_reach(network: Fields) -> Reach:
    """What a new sandbox may reach.

    Raises:
        InvalidArgument: a value has the wrong type.
        NotYet: it asks for what does not exist here.
    """
    network.refuse_unknown((*_EGRESS, *_INGRESS))
    return _reach(network)


def parse_change(body: Fields) -> tuple[bool, Reach]:
    """What a sandbox may reach from now on: what the body does not name is unrestricted.

    Returns:
        Whether the internet is open, and the two lists.

    Raises:
        InvalidArgument, NotYet: as for create.
    """
    body.refuse_unknown((*_EGRESS, "allow_internet_access"))
    return body.flag("allow_internet_access") is not False, _reach(body)


def parse_ingress(network: Fields) -> Ingress:
    """How a new sandbox's ports are reached."""
    return Ingress(
        is_public=network.flag("allowPublicTraffic") is not False,
        request_host=network.text("maskRequestHost"),
        https_ports=network.wholes("httpsPorts"),
    )


def _reach(network: Fields) -> Reach:
    """The two lists. Names are told from addresses, because E2B has them and we do not yet."""
    for key, reason in _NOT_YET.items():
        if network.values.get(key):
            raise NotYet(f"this tupper does not support network.{key}: {reason}")
    allow_out, deny_out = network.texts("allowOut"), network.texts("denyOut")
    names = [text for text in allow_out if _is_name(text)]
    if names and ALL_TRAFFIC not in deny_out:
        raise InvalidArgument(
            f"allowed domains need {ALL_TRAFFIC} (ALL_TRAFFIC) in the denied addresses"
        )
    if names:
        raise NotYet(
            f"this tupper does not support domains in allowOut ({names[0][:100]})",
            hint="allow the addresses instead, as IPv4 or CIDR",
        )
    return allow_out, deny_out


def _is_name(text: str) -> bool:
    return ":" not in text and bool(_NAME.fullmatch(text))
