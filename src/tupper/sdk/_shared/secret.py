"""Secrets as the SDK shows them. No I/O. Source: the public names of ``e2b`` 2.63.0."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import envd
from tupper.sdk._shared.errors import ProtocolException


@dataclass
class SecretInfo:
    """What is known about a secret; never its value.

    Args:
        secret_id: ``sec_`` and 20 letters or digits.
        name: lower case.
        version: counts its values.
        metadata: labels.
        created_at, updated_at: aware.
    """

    secret_id: str
    name: str
    version: int
    metadata: dict[str, str]
    created_at: dt.datetime
    updated_at: dt.datetime


def parse_secret(value: object) -> SecretInfo:
    """One secret."""
    try:
        fields = envd.Fields(value, "secret")
    except GuestMisbehaved as error:
        raise ProtocolException(error.message) from error
    return SecretInfo(
        secret_id=fields.text("secretID"),
        name=fields.text("name"),
        version=fields.integer("currentVersion"),
        metadata=fields.mapping("metadata"),
        created_at=envd.parse_time(fields.text("createdAt"), "secret: createdAt"),
        updated_at=envd.parse_time(fields.text("updatedAt"), "secret: updatedAt"),
    )
