"""API keys for callers over TCP: who has one owns the sandboxes made with it, and no others.

A key has the form that E2B's clients insist on. Only its SHA-256 is stored; a key has 160 random
bits, so a slow hash would protect nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable

from tupper.engine import ApiKey

_PREFIX = "e2b_"


def new_key(label: str) -> tuple[str, ApiKey]:
    """A new key: its secret, shown once, and what is stored."""
    secret = _PREFIX + secrets.token_hex(20)
    return secret, ApiKey(secrets.token_hex(4), _hash(secret), label, time.time())


def find_key(secret: str, keys: Iterable[ApiKey]) -> ApiKey | None:
    """The key of a secret; takes the same time for every wrong one."""
    wanted = _hash(secret)
    found = [key for key in keys if hmac.compare_digest(wanted, key.hash)]
    return found[0] if found else None


def given_secrets(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """What a request brings as its key: ``X-API-KEY``, or ``Authorization: Bearer``."""
    found: list[str] = []
    for name, value in headers:
        text = value.decode("latin-1").strip()
        scheme, _, rest = text.partition(" ")
        if name == b"x-api-key":
            found.append(text)
        elif name == b"authorization" and scheme.lower() == "bearer":
            found.append(rest.strip())
    return found


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
