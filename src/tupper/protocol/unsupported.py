"""What E2B has and this tupper has not: refused by name, never accepted and ignored."""

from __future__ import annotations

from tupper.core.errors import TupperError


class NotYet(TupperError):
    """E2B has it, this tupper does not; the text says why."""

    code = "unsupported"
