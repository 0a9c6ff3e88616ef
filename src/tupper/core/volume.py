"""Volumes: directories that outlive sandboxes, and are seen in several at once. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A volume as it is remembered.

    Args:
        id: ``v`` and 20 characters.
        name: unique for its owner.
        token: what requests for its content must bring.
        owner_key: the id of the API key that it belongs to; empty for the machine's own user.
        created_at: unix seconds.
    """

    id: str
    name: str
    token: str
    owner_key: str = ""
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume in a sandbox.

    Args:
        name: of the volume.
        path: inside.
        volume_id: of the volume; empty in a request.
    """

    name: str
    path: str
    volume_id: str = ""
