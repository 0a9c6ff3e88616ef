"""Secrets: kept in the store, whose file is the user's alone, and given back to nobody.

Nothing reads a value yet: what would put one into a sandbox's requests on their way out does not
exist here, and asking for that is refused (``network.rules``). So this is the keeping only.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping

from tupper.core.errors import AlreadyExists, InvalidArgument, NotFound
from tupper.core.ids import new_sandbox_id
from tupper.core.secret import SecretRecord
from tupper.engine.store import Store
from tupper.protocol.fields import Fields, parse_object

_KIND = "secret"
_PREFIX = "sec_"
# What can stand in E2B's placeholder, ``${e2b.secrets.NAME}``.
_NAME = re.compile(r"[^{}\x00-\x1f\x7f-\x9f]{1,128}")
MAX_VALUE = 64 * 1024
# Source: the published client, ``api/client/models/new_secret.py`` of e2b 2.63.0.
_MAX_ENTRIES, _MAX_KEY, _MAX_TEXT, _MAX_ALL = 32, 128, 1024, 8192


class SecretNotFound(NotFound):
    """No secret has this id or name, or it belongs to somebody else."""

    code = "secret_not_found"


class Secrets:
    """All secrets of one engine.

    Args:
        store: keeps them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secrets: dict[str, SecretRecord] = {}
        self._making: set[tuple[str, str]] = set()

    async def load(self) -> None:
        """Read what there is."""
        for text in await self._store.kept(_KIND):
            record = _parse(parse_object(text))
            self._secrets[record.id] = record

    def list(self, owner_key: str | None = None) -> list[SecretRecord]:
        """The secrets of an API key, or all for None; the oldest first."""
        return [s for s in self._secrets.values() if owner_key in (None, s.owner_key)]

    def find(self, reference: str, owner_key: str | None = None) -> SecretRecord:
        """A secret by its id or name.

        Raises:
            SecretNotFound: there is none, or it is another key's.
        """
        mine = self.list(owner_key)
        found = [s for s in mine if s.id == reference]
        found = found or [s for s in mine if s.name == reference.lower()]
        if not found:
            raise SecretNotFound(f"secret {reference[:200]!r} was not found")
        return min(found, key=lambda secret: secret.owner_key)  # the user's own first

    async def create(
        self, name: str, value: str, metadata: Mapping[str, str], owner_key: str
    ) -> SecretRecord:
        """Keep a new secret.

        Raises:
            InvalidArgument: a name, a value or labels that cannot be.
            AlreadyExists: the owner has one of that name.
        """
        name = name.lower()
        if not _NAME.fullmatch(name) or name.startswith(_PREFIX):
            raise InvalidArgument(
                f"{name[:80]!r} cannot be a secret's name",
                hint="1 to 128 characters, without braces; not beginning with sec_",
            )
        _check(value, metadata)
        taken = {(s.owner_key, s.name) for s in self._secrets.values()} | self._making
        if (owner_key, name) in taken:
            raise AlreadyExists(f"a secret named {name!r} exists")
        now = time.time()
        secret_id = _PREFIX + new_sandbox_id()[1:]
        record = SecretRecord(secret_id, name, value, owner_key, 1, dict(metadata), now, now)
        self._making.add((owner_key, name))
        try:
            await self._keep(record)
        finally:
            self._making.discard((owner_key, name))
        return record

    async def update(
        self, secret_id: str, value: str, metadata: Mapping[str, str] | None
    ) -> SecretRecord:
        """Give a secret a new value; labels stay where None is given."""
        record = self.find(secret_id)
        labels = record.metadata if metadata is None else dict(metadata)
        _check(value, labels)
        changed = dataclasses.replace(
            record,
            value=value,
            metadata=labels,
            version=record.version + 1,
            updated_at=max(time.time(), record.updated_at),
        )
        await self._keep(changed)
        return changed

    async def _keep(self, record: SecretRecord) -> None:
        text = json.dumps(dataclasses.asdict(record))
        await self._store.keep(_KIND, record.id, record.owner_key, record.name, text)
        self._secrets[record.id] = record

    async def remove(self, secret_id: str) -> None:
        """Forget a secret."""
        record = self._secrets.pop(secret_id, None)
        if record is None:
            raise SecretNotFound(f"secret {secret_id!r} was not found")
        try:
            await self._store.let_go(_KIND, secret_id)
        except BaseException:
            self._secrets[secret_id] = record
            raise


def _check(value: str, metadata: Mapping[str, str]) -> None:
    if not value or len(value.encode()) > MAX_VALUE:
        raise InvalidArgument(f"a secret's value has 1 to {MAX_VALUE} bytes")
    if len(metadata) > _MAX_ENTRIES:
        raise InvalidArgument(f"a secret has at most {_MAX_ENTRIES} labels")
    sizes = [(len(key.encode()), len(text.encode())) for key, text in metadata.items()]
    too_long = any(key > _MAX_KEY or text > _MAX_TEXT for key, text in sizes)
    if too_long or sum(key + text for key, text in sizes) > _MAX_ALL:
        raise InvalidArgument(
            f"a secret's labels have keys of {_MAX_KEY} bytes, values of {_MAX_TEXT}, "
            f"and {_MAX_ALL} in all, at most"
        )


def _parse(f: Fields) -> SecretRecord:
    return SecretRecord(
        id=f.text("id"),
        name=f.text("name"),
        value=f.text("value"),
        owner_key=f.text("owner_key"),
        version=f.whole("version") or 1,
        metadata=f.text_map("metadata"),
        created_at=f.number("created_at") or 0.0,
        updated_at=f.number("updated_at") or 0.0,
    )
