"""Signatures of file links. Source: wire specification 9.4."""

from __future__ import annotations

import base64
import hashlib
import time
import urllib.parse
from typing import Literal, TypedDict


class Signature(TypedDict):
    """A signature and when it expires (unix seconds; None for never)."""

    signature: str
    expiration: int | None


def get_signature(
    path: str,
    operation: Literal["read", "write"],
    user: str | None,
    envd_access_token: str | None,
    expiration_in_seconds: int | None = None,
) -> Signature:
    """Sign one operation on one path.

    Args:
        path: as it will stand in the link.
        operation: what the link allows.
        user: on whose behalf; None for the sandbox's default user.
        envd_access_token: the sandbox's token.
        expiration_in_seconds: from now; None for never.

    Errors:
        ValueError: there is no token to sign with.
    """
    if not envd_access_token:
        raise ValueError("the sandbox has no access token to sign with")
    expiration = None
    if expiration_in_seconds is not None:
        expiration = int(time.time()) + expiration_in_seconds
    parts = [path, operation, user or "", envd_access_token]
    if expiration is not None:
        parts.append(str(expiration))
    digest = hashlib.sha256(":".join(parts).encode()).digest()
    text = base64.b64encode(digest).decode().rstrip("=")
    return {"signature": f"v1_{text}", "expiration": expiration}


def render_link(base: str, path: str, user: str | None, signature: Signature | None) -> str:
    """The link itself."""
    query = {"path": path}
    if user:
        query["username"] = user
    if signature is not None:
        query["signature"] = signature["signature"]
        if signature["expiration"] is not None:
            query["signature_expiration"] = str(signature["expiration"])
    return f"{base}/files?{urllib.parse.urlencode(query)}"
