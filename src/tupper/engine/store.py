"""The store: one SQLite file that says what exists, written before it does.

WAL mode with ``synchronous=FULL``: what a call returned from is on disk. There is one writer, the
process that holds the lock on the data directory; the lock goes with the process, so a killed
engine never leaves a stale one. Every call runs in one thread of its own, off the event loop.

The schema has a number (``PRAGMA user_version``); :data:`MIGRATIONS` leads from each to the next.
A store that is newer than this program is refused, not guessed at.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html; flock(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from tupper.core.errors import AlreadyExists, OutOfDisk, StoreError, TupperError
from tupper.core.ids import new_engine_id
from tupper.core.lifecycle import EndReason, State
from tupper.core.paths import make_private
from tupper.core.sandbox import SandboxRecord
from tupper.core.snapshot import SnapshotRecord
from tupper.engine.listing import Query, render_ended
from tupper.engine.place import Place, refuse_network
from tupper.engine.record import parse_record, parse_snapshot, render_record

MIGRATIONS: tuple[str, ...] = (
    # 1: the first.
    """
    CREATE TABLE engine (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL,
        created_at REAL NOT NULL, ended_at REAL NOT NULL, record TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX living_names ON sandboxes(name) WHERE name != '' AND state != 'ended';
    CREATE INDEX by_state ON sandboxes(state, ended_at);
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, hash BLOB NOT NULL, label TEXT NOT NULL, created_at REAL NOT NULL
    ) STRICT;
    """,
    # 2: volumes and secrets.
    """
    CREATE TABLE kept (
        kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,
        record TEXT NOT NULL, PRIMARY KEY (kind, id), UNIQUE (kind, owner, name)
    ) STRICT;
    """,
    # 3: snapshots.
    """
    CREATE TABLE snapshots (
        id TEXT PRIMARY KEY, created_at REAL NOT NULL, record TEXT NOT NULL
    ) STRICT;
    """,
    # 4: the order of listings.
    """
    ALTER TABLE sandboxes ADD COLUMN started_at REAL NOT NULL DEFAULT 0;
    UPDATE sandboxes SET started_at = coalesce(json_extract(record, '$.started_at'), 0)
        WHERE json_valid(record);
    CREATE INDEX oldest_first ON sandboxes(state, started_at, id);
    CREATE INDEX newest_first ON sandboxes(state, started_at DESC, id);
    """,
)

_ROW = """(id, name, state, created_at, ended_at, record, started_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_DAMAGED = "restore the file from a backup, or move it away: sandboxes it knew are then removed"

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key for callers over TCP; only its hash is kept.

    Args:
        id: names it.
        hash: SHA-256 of the key.
        label: for people.
        created_at: unix seconds.
    """

    id: str
    hash: bytes
    label: str
    created_at: float


class Store:
    """What is remembered. Made by :meth:`open`; every method may be called from any task."""

    def __init__(self, data_dir: Path) -> None:
        self._directory = data_dir
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tupper-store")
        self._lock_fd = -1
        self._closed = False
        self._db: sqlite3.Connection | None = None
        self.engine_id = ""

    @classmethod
    async def open(cls, data_dir: Path) -> Self:
        """Lock the data directory and open its store, making both where missing.

        Raises:
            StoreError: another engine holds it, or it is damaged, too new, or on a network.
        """
        store = cls(data_dir)
        try:
            await store._call(store._open)
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Close the file and give the lock back. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._call(self._close))
            self._thread.shutdown(wait=False)

    async def insert(self, record: SandboxRecord) -> None:
        """Remember a new sandbox.

        Raises:
            AlreadyExists: a living one has its name.
        """
        await self._call(self._insert, record)

    async def save(self, record: SandboxRecord) -> None:
        """Remember a sandbox's new record."""
        await self._call(self._save, record)

    async def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox, as if it had never been."""
        await self._call(self._write, "DELETE FROM sandboxes WHERE id = ?", (sandbox_id,))

    async def living(self) -> list[SandboxRecord]:
        """All sandboxes that have not ended."""
        return await self._call(self._select, "state != 'ended'", ())

    async def ended(self, query: Query) -> list[SandboxRecord]:
        """The ended sandboxes of a page, in its order, and one more if there is one."""
        return await self._call(self._select, *render_ended(query))

    async def find_ended(
        self, id_or_name: str, *, owner_key: str | None = None
    ) -> SandboxRecord | None:
        """The ended sandbox of this id, the latest of this name, or the one whose id begins so.

        Args:
            id_or_name: which.
            owner_key: only one of this API key's; None for anybody's.
        """
        where = "state = 'ended' AND (id = ? OR name = ? OR name LIKE '%/' || ?) "
        found = [
            record
            for record in await self._call(
                self._select, where + "ORDER BY ended_at DESC", (id_or_name,) * 3
            )
            if id_or_name in (record.id, record.name) and owner_key in (None, record.owner_key)
        ]
        return found[0] if found else await self._begun(id_or_name, owner_key)

    async def _begun(self, start: str, owner_key: str | None) -> SandboxRecord | None:
        """The only ended sandbox whose id begins so."""
        if len(start) < 3:
            return None
        where = "state = 'ended' AND substr(id, 1, ?) = ?"
        found = await self._call(self._select, where, (len(start), start))
        own = [record for record in found if owner_key in (None, record.owner_key)]
        return own[0] if len(own) == 1 else None

    async def forget_ended(self, before: float) -> int:
        """Forget sandboxes that ended before this time, in unix seconds."""
        return await self._call(
            self._write, "DELETE FROM sandboxes WHERE state = 'ended' AND ended_at < ?", (before,)
        )

    async def get(self, key: str) -> str:
        """A value of the engine; empty if never set."""
        return await self._call(self._get, key)

    async def put(self, key: str, value: str) -> None:
        """Set a value of the engine."""
        await self._call(self._set, key, value)

    async def keys(self) -> list[ApiKey]:
        """All API keys."""
        return await self._call(self._keys)

    async def add_key(self, key: ApiKey) -> None:
        """Remember an API key."""
        await self._call(
            self._write,
            "INSERT INTO keys VALUES (?, ?, ?, ?)",
            (key.id, key.hash, key.label, key.created_at),
        )

    async def remove_key(self, key_id: str) -> bool:
        """Forget an API key. Returns whether there was one."""
        return await self._call(self._write, "DELETE FROM keys WHERE id = ?", (key_id,)) > 0

    async def kept(self, kind: str) -> list[str]:
        """The records of all things of a kind, as JSON."""
        return await self._call(self._kept, kind)

    async def keep(self, kind: str, thing_id: str, owner: str, name: str, record: str) -> None:
        """Remember a thing, or its new record.

        Args:
            kind: of thing.
            thing_id: unique in its kind.
            owner: whose; empty for this machine's user.
            name: unique for its owner.
            record: JSON.
        """
        await self._call(
            self._write,
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?)",
            (kind, thing_id, owner, name, record),
        )

    async def let_go(self, kind: str, thing_id: str) -> bool:
        """Forget a thing. Returns whether there was one."""
        statement = "DELETE FROM kept WHERE kind = ? AND id = ?"
        return await self._call(self._write, statement, (kind, thing_id)) > 0

    async def snapshots(self) -> list[SnapshotRecord]:
        """All snapshots, the newest first."""
        return await self._call(self._snapshots)

    async def save_snapshot(self, record: SnapshotRecord) -> None:
        """Remember a snapshot."""
        await self._call(
            self._write,
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            (record.id, record.created_at, render_record(record)),
        )

    async def forget_snapshot(self, snapshot_id: str) -> bool:
        """Forget a snapshot. Returns whether there was one."""
        statement = "DELETE FROM snapshots WHERE id = ?"
        return await self._call(self._write, statement, (snapshot_id,)) > 0

    # All below runs in the store's own thread.

    async def _call(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = functools.partial(function, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except sqlite3.Error as error:
            raise _failure(self._directory / "tupper.db", error) from error

    def _open(self) -> None:
        make_private(self._directory)
        refuse_network(self._directory)
        self._lock_fd = _lock(self._directory / "lock")
        path = self._directory / "tupper.db"
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            path.chmod(0o600)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            migrate(self._db)
        except sqlite3.DatabaseError as error:
            raise _failure(path, error) from error
        self._db.execute(
            "INSERT OR IGNORE INTO engine VALUES ('id', ?), ('created_at', ?)",
            (new_engine_id(), str(time.time())),
        )
        self._bind(Place.of(self._directory))
        self.engine_id = self._get("id")

    def _bind(self, place: Place) -> None:
        """Bind our id to the directory: whoever copies it copies no claim to what runs.

        In one step: a copy that knows its new place, and still what it does not own, would end it.
        """
        kept = self._get("place")
        if kept == place.render():
            return  # nothing is written: a full disk keeps no engine from starting
        with self._transaction():
            if not place.is_that_of(kept):
                for record in self._select("state != 'ended'", ()):
                    self._save(left_behind(record))
                self._set("id", new_engine_id())
            self._set("place", place.render())

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError("the store is closed")
        return self._db

    def _insert(self, record: SandboxRecord) -> None:
        try:
            self._write(f"INSERT INTO sandboxes {_ROW}", _row(record))
        except sqlite3.IntegrityError as error:
            raise AlreadyExists(f"a sandbox named {record.name!r} exists") from error

    def _save(self, record: SandboxRecord) -> None:
        self._write(f"INSERT OR REPLACE INTO sandboxes {_ROW}", _row(record))

    def _select(self, where: str, values: Sequence[object]) -> list[SandboxRecord]:
        query = f"SELECT id, record FROM sandboxes WHERE {where}"  # noqa: S608 - our own text
        return [_parse(*row) for row in self._connection().execute(query, values)]

    def _get(self, key: str) -> str:
        query = "SELECT value FROM engine WHERE key = ?"
        row = self._connection().execute(query, (key,)).fetchone()
        return str(row[0]) if row else ""

    def _set(self, key: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO engine VALUES (?, ?)", (key, value))

    def _kept(self, kind: str) -> list[str]:
        query = "SELECT record FROM kept WHERE kind = ? ORDER BY rowid"
        return [str(row[0]) for row in self._connection().execute(query, (kind,))]

    def _keys(self) -> list[ApiKey]:
        query = "SELECT id, hash, label, created_at FROM keys ORDER BY created_at"
        return [ApiKey(*row) for row in self._connection().execute(query)]

    def _snapshots(self) -> list[SnapshotRecord]:
        query = "SELECT id, record FROM snapshots ORDER BY created_at DESC, id"
        return [_parse_snapshot(*row) for row in self._connection().execute(query)]

    def _write(self, statement: str, values: Sequence[object]) -> int:
        return self._connection().execute(statement, values).rowcount


def left_behind(record: SandboxRecord) -> SandboxRecord:
    """What a sandbox of the original is in a copy: a paused one was copied, a machine was not."""
    bare = replace(record, machine=None, agent=None, attachment=None)
    if record.state is State.PAUSED:
        return bare
    return replace(
        bare,
        state=State.ENDED,
        ended_at=time.time(),
        end_reason=EndReason.LEFT_BEHIND,
        end_detail="it runs where the data directory was copied from",
    )


def _row(record: SandboxRecord) -> tuple[object, ...]:
    state = str(State(record.state))
    # Names are unique for each owner. No name has a slash.
    name = f"{record.owner_key}/{record.name}" if record.name and record.owner_key else record.name
    return (
        record.id, name, state, record.created_at, record.ended_at, render_record(record),
        record.started_at,
    )  # fmt: skip


def _parse(sandbox_id: str, text: str) -> SandboxRecord:
    try:
        return parse_record(text)
    except (TupperError, ValueError, TypeError) as error:
        raise StoreError(
            f"the record of sandbox {sandbox_id} in the store is damaged: {error}", hint=_DAMAGED
        ) from error


def _parse_snapshot(snapshot_id: str, text: str) -> SnapshotRecord:
    try:
        return parse_snapshot(text)
    except (TupperError, ValueError, TypeError) as error:
        raise StoreError(
            f"the record of snapshot {snapshot_id} in the store is damaged: {error}", hint=_DAMAGED
        ) from error


def _failure(path: Path, error: sqlite3.Error) -> TupperError:
    """What an error of SQLite means to us."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _FULL:
        return OutOfDisk(
            f"the disk is full, so the store {path} cannot be written",
            hint="free some space; killing a sandbox frees what its disk takes",
        )
    damaged = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return StoreError(f"cannot use the store {path}: {error}", hint=_DAMAGED if damaged else None)


def migrate(db: sqlite3.Connection) -> None:
    """Bring a store to the newest schema, each step in one transaction.

    Raises:
        StoreError: it was written by a newer tupper.
    """
    have = int(db.execute("PRAGMA user_version").fetchone()[0])
    if have > len(MIGRATIONS):
        raise StoreError(
            f"the store has schema {have}, this tupper knows up to {len(MIGRATIONS)}",
            hint="use the newer tupper that wrote it, or another TUPPER_HOME",
        )
    for number, script in enumerate(MIGRATIONS[have:], start=have + 1):
        db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


def _lock(path: Path) -> int:
    """Take the lock of a data directory; the descriptor holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StoreError(
            f"another tupper (pid {pid}) uses the data directory {path.parent}",
            hint="talk to that one, or set TUPPER_HOME to another directory",
        ) from error
    os.ftruncate(fd, 0)
    with contextlib.suppress(OSError):
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd
