"""Volumes as the SDK shows them, and their JSON. No I/O.

Source: the public names of the ``e2b`` package 2.63.0; wire specification 6.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import envd
from tupper.sdk._shared.errors import ProtocolException


class VolumeFileType(StrEnum):
    """What lies at a path of a volume."""

    UNKNOWN = "unknown"
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass
class VolumeInfo:
    """A volume.

    Args:
        volume_id: ``v`` and 20 letters or digits.
        name: as given.
    """

    volume_id: str
    name: str


@dataclass
class VolumeAndToken(VolumeInfo):
    """A volume, and what leads to its content.

    Args:
        token: what requests for its content bring.
        domain: exists for compatibility.
    """

    token: str
    domain: str | None = None


@dataclass
class VolumeEntryStat:
    """What lies at a path of a volume.

    Args:
        name: the last part of the path.
        type: what it is.
        path: from the root of the volume.
        size: bytes.
        mode: permission bits.
        uid, gid: who owns it, as inside.
        atime, mtime, ctime: aware.
        target: of a link, as written in it.
    """

    name: str
    type: VolumeFileType
    path: str
    size: int
    mode: int
    uid: int
    gid: int
    atime: dt.datetime
    mtime: dt.datetime
    ctime: dt.datetime
    target: str | None = None


class VolumeApiParams(TypedDict, total=False):
    """How to reach the content of a volume; what is not there is as for the volume."""

    domain: str | None
    debug: bool | None
    request_timeout: float | None
    headers: dict[str, str] | None
    token: str | None
    api_url: str | None
    proxy: object
    http_version: str | None
    logger: logging.Logger | None


def _fields(value: object, what: str) -> envd.Fields:
    try:
        return envd.Fields(value, what)
    except GuestMisbehaved as error:
        raise ProtocolException(error.message) from error


def parse_volume(value: object) -> VolumeAndToken:
    """One volume; without a token in lists."""
    fields = _fields(value, "volume")
    volume_id = fields.text("volumeID")
    if not volume_id:
        raise ProtocolException("the server's answer names no volume")
    return VolumeAndToken(
        volume_id, fields.text("name"), fields.text("token"), fields.optional_text("domain")
    )


def parse_stat(value: object) -> VolumeEntryStat:
    """One entry."""
    fields = _fields(value, "volume entry")
    kind = fields.text("type")
    known = kind in set(VolumeFileType)
    return VolumeEntryStat(
        name=fields.text("name"),
        type=VolumeFileType(kind) if known else VolumeFileType.UNKNOWN,
        path=fields.text("path"),
        size=fields.integer("size"),
        mode=fields.integer("mode"),
        uid=fields.integer("uid"),
        gid=fields.integer("gid"),
        atime=envd.parse_time(fields.text("atime"), "volume entry: atime"),
        mtime=envd.parse_time(fields.text("mtime"), "volume entry: mtime"),
        ctime=envd.parse_time(fields.text("ctime"), "volume entry: ctime"),
        target=fields.optional_text("target"),
    )


def render_owner(
    uid: int | None, gid: int | None, mode: int | None, force: bool | None
) -> Mapping[str, str]:
    """The parameters of what is made. A mode is a decimal number on the wire."""
    numbers = {"uid": uid, "gid": gid, "mode": mode}
    query = {name: str(value) for name, value in numbers.items() if value is not None}
    if force is not None:
        query["force"] = "true" if force else "false"
    return query


def render_mounts(mounts: Mapping[str, object]) -> list[dict[str, str]]:
    """``volumeMounts`` of a create: path inside → a volume or its name."""
    return [
        {"name": str(getattr(volume, "name", volume)), "path": path}
        for path, volume in mounts.items()
    ]
