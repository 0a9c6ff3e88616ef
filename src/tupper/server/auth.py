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
    headers = list(headers)
    keys = [value.decode("latin-1").strip() for name, value in headers if name == b"x-api-key"]
    return keys + bearer_tokens(headers)


def bearer_tokens(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """What follows ``Authorization: Bearer``."""
    texts = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    parts = [text.strip().partition(" ") for text in texts]
    return [rest.strip() for scheme, _, rest in parts if scheme.lower() == "bearer"]


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
