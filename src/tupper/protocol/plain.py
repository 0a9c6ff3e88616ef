"""The plain words of create, for people who type the request themselves. No I/O.

``{"image": "python:3.12", "memory_mib": 512}`` says the same as E2B's and our own nested keys. A
body with ``templateID`` is E2B's and is left as it is.

Source: ``docs/http.md``.
"""

from __future__ import annotations

from tupper.core.errors import InvalidArgument
from tupper.protocol.fields import Fields

# Plain word → E2B's key.
_E2B = {
    "template": "templateID",
    "metadata": "metadata",
    "env": "envVars",
    "timeout": "timeout",
    "internet": "allow_internet_access",
    "network": "network",
}
# Plain word → our key below ``tupper``.
_OURS = {
    "image": "image",
    "name": "name",
    "backend": "backend",
    "min_isolation": "minIsolation",
    "cpus": "cpus",
    "memory_mib": "memoryMiB",
    "disk_mib": "diskMiB",
    "pids": "pids",
    "workdir": "workdir",
    "user": "user",
    "idle_timeout": "idleTimeout",
}
WORDS = (*_E2B, *_OURS)


def is_plain(body: Fields) -> bool:
    """Whether a body of create is in plain words: it names neither E2B's template nor our key."""
    return "templateID" not in body.values and "tupper" not in body.values


def expand(body: Fields) -> Fields:
    """The body in E2B's and our keys.

    Raises:
        InvalidArgument: a word and the key that it stands for are both there.
    """
    out: dict[str, object] = {}
    ours: dict[str, object] = {}
    for key, value in body.values.items():
        name = _E2B.get(key, key)
        if key in _OURS:
            ours[_OURS[key]] = value
        elif name != key and name in body.values:
            raise InvalidArgument(f"{key} and {name} are the same; give one of them")
        else:
            out[name] = value
    if ours:
        out["tupper"] = ours
    return Fields(out)
