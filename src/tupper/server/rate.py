"""How many requests a caller over TCP may make: a bucket of tokens for each.

A bucket holds two seconds' worth and fills at the rate. Written out, because it is one subtraction;
the libraries for it bring stores for many processes, and there is one here.

Source: https://en.wikipedia.org/wiki/Token_bucket.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_BURST_S = 2.0
_CALLERS = 4096


class Rate:
    """The buckets of all callers; of those that have not come for long, none is kept.

    Args:
        per_s: requests in a second; 0 for no limit.
        clock: monotonic seconds.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, caller: str) -> bool:
        """Take a token; whether there was one."""
        if self._per_s <= 0:
            return True
        now, most = self._clock(), self._per_s * _BURST_S
        left, at = self._buckets.pop(caller, (most, now))
        left = min(most, left + (now - at) * self._per_s)
        is_allowed = left >= 1
        self._buckets[caller] = (left - 1 if is_allowed else left, now)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        return is_allowed
