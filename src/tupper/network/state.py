"""What is written down of each attached sandbox, so that its rules can be made again.

The kernel holds the truth about namespaces and links; what it cannot give back after somebody
flushed the packet filter is kept here: one small file per sandbox, gone with its network.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tupper.core import log
from tupper.core.paths import make_private
from tupper.network.policy import Policy, check_policy
from tupper.network.ruleset import Member
from tupper.protocol.connect import as_list, as_object

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """An attached sandbox.

    Args:
        sandbox_id: whose network.
        link: its device on the host.
        guest: its address.
        policy: as the user gave it.
        virtual_servers: the addresses it may use as name servers.
    """

    sandbox_id: str
    link: str
    guest: str
    policy: Policy
    virtual_servers: tuple[str, ...]

    def member(self, resolvers: tuple[str, ...]) -> Member:
        """As the packet filter sees it, with the name servers that the host has now."""
        pairs = tuple(
            (virtual, resolvers[min(index, len(resolvers) - 1)])
            for index, virtual in enumerate(self.virtual_servers)
            if resolvers
        )
        return Member(self.link, self.guest, check_policy(self.policy), pairs)

    def as_json(self) -> dict[str, object]:
        """A JSON-able form."""
        return dataclasses.asdict(self)


class State:
    """The entries of one engine.

    Args:
        directory: below the engine's data directory; created when needed.
    """

    def __init__(self, directory: Path) -> None:
        self._dir = directory

    def save(self, entry: Entry) -> None:
        """Write or replace an entry."""
        make_private(self._dir)
        path = self._path(entry.sandbox_id)
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(entry.as_json(), file)
        fresh.replace(path)

    def load(self, sandbox_id: str) -> Entry | None:
        """The entry of a sandbox; None if it has none, or a damaged one."""
        path = self._path(sandbox_id)
        try:
            return _parse(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            log.problem("network.entry_damaged", path=path, error=error)
            return None

    def entries(self) -> list[Entry]:
        """All entries that can be read."""
        found = (self.load(path.stem) for path in sorted(self._dir.glob("*.json")))
        return [entry for entry in found if entry is not None]

    def ids(self) -> set[str]:
        """The sandboxes that have a file, damaged and half-written ones included."""
        return {path.stem for kind in ("*.json", "*.new") for path in self._dir.glob(kind)}

    def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox. Idempotent."""
        path = self._path(sandbox_id)
        path.unlink(missing_ok=True)
        path.with_suffix(".new").unlink(missing_ok=True)

    def _path(self, sandbox_id: str) -> Path:
        return self._dir / f"{sandbox_id}.json"


def _parse(value: object) -> Entry:
    fields, policy = _object(value), _object(_object(value).get("policy"))
    return Entry(
        sandbox_id=str(fields["sandbox_id"]),
        link=str(fields["link"]),
        guest=str(fields["guest"]),
        policy=Policy(
            internet=policy["internet"] is True,
            allow_out=_tuple(policy["allow_out"], str),
            deny_out=_tuple(policy["deny_out"], str),
            allow_host_ports=_tuple(policy["allow_host_ports"], int),
        ),
        virtual_servers=_tuple(fields["virtual_servers"], str),
    )


def _object(value: object) -> dict[str, object]:
    found = as_object(value)
    if found is None:
        raise TypeError("not an object")
    return found


def _tuple(value: object, kind: Callable[[str], T]) -> tuple[T, ...]:
    found = as_list(value)
    if found is None:
        raise TypeError("not a list")
    return tuple(kind(str(item)) for item in found)
