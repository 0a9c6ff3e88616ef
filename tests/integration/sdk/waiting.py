"""Waiting for what has no event."""

import time


def wait_for(condition, limit_s=30.0):
    """Until the condition holds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)
