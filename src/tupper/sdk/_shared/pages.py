"""Where a listing stands that comes page by page, for all that is listed and both halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tupper.sdk._shared import errors

_PAGE = 100


class Pages:
    """The place in a listing.

    Args:
        limit: how many on a page, 1 to 100.
        next_token: where to begin.
    """

    _error: ClassVar[type[errors.SandboxException | errors.SecretException]] = (
        errors.SandboxException
    )

    def __init__(self, limit: int | None, next_token: str | None) -> None:
        self._limit = limit
        self._next_token = next_token
        self._has_next = True

    @property
    def has_next(self) -> bool:
        """Whether there may be another page."""
        return self._has_next

    @property
    def next_token(self) -> str | None:
        """Where the next page begins."""
        return self._next_token

    def _place(self) -> dict[str, str]:
        """The query for the next page."""
        if not self._has_next:
            raise self._error("there is no next page", code="invalid_argument")
        place = {"limit": str(self._limit or _PAGE)}
        if self._next_token:
            place["nextToken"] = self._next_token
        return place

    def _advance(self, headers: Mapping[str, str]) -> None:
        self._next_token = headers.get("x-next-token") or None
        self._has_next = self._next_token is not None
