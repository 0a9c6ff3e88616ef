"""Secrets: values that are given once and never shown again. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A secret as it is remembered.

    Args:
        id: ``sec_`` and 20 characters.
        name: lower case, unique for its owner.
        value: never leaves the store.
        owner_key: the id of the API key that it belongs to; empty for the machine's own user.
        version: counts the values it has had.
        metadata: labels.
        created_at, updated_at: unix seconds.
    """

    id: str
    name: str
    value: str = field(repr=False)
    owner_key: str = ""
    version: int = 1
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    created_at: float = 0.0
    updated_at: float = 0.0
