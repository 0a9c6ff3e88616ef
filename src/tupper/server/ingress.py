"""How requests reach the ports of a sandbox that did not want them as they come.

The agent's own port is never meant: it asks for the sandbox's token itself.

Source: E2B wire notes, 4.10 and 4.11.
"""

from __future__ import annotations

import functools
import hmac
import ssl
from dataclasses import replace

from tupper.core.sandbox import Ingress, SandboxRecord
from tupper.protocol.e2b import ENVD_PORT
from tupper.server.head import Head

TRAFFIC_TOKEN = b"e2b-traffic-access-token"


def ingress_of(record: SandboxRecord | None, port: int) -> Ingress:
    """What a sandbox wants for requests to a port."""
    return Ingress() if record is None or port == ENVD_PORT else record.ingress


def judge_traffic(record: SandboxRecord, head: Head, port: int) -> str:
    """Why a request may not reach a port; empty if it may."""
    if ingress_of(record, port).is_public:
        return ""
    given = head.values(TRAFFIC_TOKEN)
    secured = "Sandbox is secured with traffic access token."
    name = TRAFFIC_TOKEN.decode()
    if not given:
        return f"{secured} Token header '{name}' is missing"
    if len(given) != 1 or not hmac.compare_digest(given[0], record.traffic_token.encode()):
        return f"{secured} Provided token in header '{name}' is invalid"
    return ""


def dress(head: Head, ingress: Ingress, port: int) -> Head:
    """The head as the service inside shall see it: never with the traffic token."""
    if ingress.is_plain:
        return head
    host = ingress.request_host.replace("${PORT}", str(port)).encode("ascii")
    fields = [field for field in head.fields if field[0].lower() != TRAFFIC_TOKEN]
    if host:
        fields = [field for field in fields if field[0].lower() != b"host"]
        fields.insert(0, (b"Host", host))
    return replace(head, fields=tuple(fields))


@functools.cache
def guest_tls() -> ssl.SSLContext:
    """For ports inside that speak TLS: whoever answers there is the guest, certificate or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
