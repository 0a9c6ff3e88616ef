"""``Idempotency-Key`` of create: a request that is sent again makes no second sandbox.

Kept in memory, for as long as this process lives and at most a day: clients repeat a request
within seconds. A create that failed leaves its key free. Source: E2B wire notes, 4.2.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from tupper.core.errors import Conflict, InvalidArgument
from tupper.core.sandbox import SandboxRecord

_KEY = re.compile(r"[a-z0-9-]{1,255}")
_KEPT = 1000
_KEPT_S = 24 * 3600.0


class KeyReused(Conflict):
    """The same key came with another request."""

    code = "idempotency_request_mismatch"


class KeyInProgress(Conflict):
    """The first request of this key is not finished."""

    code = "idempotency_in_progress"


@dataclass(slots=True)
class Claim:
    """What a key stands for.

    Args:
        digest: of the request.
        at: when it was made, in seconds of the monotonic clock.
        record: of the sandbox, once there is one.
    """

    digest: bytes
    at: float
    record: SandboxRecord | None = None


class Keys:
    """The keys of the last day, the oldest first."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Claim] = {}

    @contextmanager
    def claim(self, caller: str, key: str, body: Mapping[str, object]) -> Generator[Claim]:
        """Make or find what a key stands for; with no record after the block, it is forgotten.

        Args:
            caller: whose key: two callers may choose the same.
            key: as sent.
            body: of the request.

        Raises:
            InvalidArgument: it is no key.
            KeyReused, KeyInProgress: see there.
        """
        if not _KEY.fullmatch(key):
            raise InvalidArgument("Idempotency-Key: 1 to 255 characters of a-z, 0-9 and -")
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        self._forget_old()
        place = (hashlib.sha256(caller.encode()).hexdigest(), key)
        have = self._claims.get(place)
        if have is not None:
            if have.digest != digest:
                raise KeyReused(f"Idempotency-Key {key} was used for another request")
            if have.record is None:
                raise KeyInProgress(f"the first request with Idempotency-Key {key} is under way")
            yield have
            return
        made = self._claims[place] = Claim(digest, time.monotonic())
        try:
            yield made
        finally:
            if made.record is None:
                self._claims.pop(place, None)

    def _forget_old(self) -> None:
        least = time.monotonic() - _KEPT_S
        for place, claim in list(self._claims.items()):
            if claim.at > least and len(self._claims) < _KEPT:
                break
            del self._claims[place]


def keys_of(request: Request) -> Keys:
    """The keys of the app that serves a request."""
    keys = request.app.state.idempotency
    if not isinstance(keys, Keys):
        raise TypeError("the app has no idempotency keys")
    return keys
