"""API keys for callers over TCP: who has one may use every sandbox, but not this machine.

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


def is_known(secret: str, keys: Iterable[ApiKey]) -> bool:
    """Whether a secret is one of the keys'; takes the same time for every wrong one."""
    wanted = _hash(secret)
    return sum([hmac.compare_digest(wanted, key.hash) for key in keys]) > 0


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
