"""Names that are made up: sandbox ids, tokens, engine ids."""

from __future__ import annotations

import re
import secrets
import string

_ALPHABET = string.ascii_lowercase + string.digits
_SANDBOX_ID = re.compile(r"i[a-z0-9]{20}")


def new_sandbox_id() -> str:
    """``i`` and 20 lower-case letters or digits: safe in DNS labels and paths."""
    return "i" + "".join(secrets.choice(_ALPHABET) for _ in range(20))


def new_volume_id() -> str:
    """``v`` and 20 lower-case letters or digits."""
    return "v" + new_sandbox_id()[1:]


def is_sandbox_id(text: str) -> bool:
    """Whether the text has the form of a sandbox id."""
    return _SANDBOX_ID.fullmatch(text) is not None


def new_snapshot_id() -> str:
    """``p`` and 20 lower-case letters or digits."""
    return "p" + new_sandbox_id()[1:]


def is_snapshot_id(text: str) -> bool:
    """Whether the text has the form of a snapshot id."""
    return text[:1] == "p" and is_sandbox_id("i" + text[1:])


def new_engine_id() -> str:
    """Five characters that tell one engine's host-wide names from another's."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


def new_token() -> str:
    """A secret of 256 bits, URL-safe."""
    return secrets.token_urlsafe(32)
