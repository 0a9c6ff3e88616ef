import dataclasses
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.backend import AgentAddress, MachineRecord, Mount
from tupper.core.errors import AlreadyExists, OutOfDisk, StoreError
from tupper.core.lifecycle import EndReason, OnTimeout, State
from tupper.core.sandbox import Ingress, SandboxRecord
from tupper.core.snapshot import Saved, SnapshotRecord
from tupper.core.volume import VolumeMount
from tupper.engine import store as module
from tupper.engine.listing import Query
from tupper.engine.place import Place, file_system_of, refuse_network
from tupper.engine.record import parse_record, render_record
from tupper.engine.store import ApiKey, Store

RECORD = SandboxRecord(
    id="i" + "a" * 20,
    state=State.RUNNING,
    token="t",
    name="n",
    metadata={"k": "v"},
    created_at=1.5,
    deadline=None,
    timeout_s=5.0,
    mounts=(Mount(Path("/h"), "/g", read_only=True),),
    ports={80: 4000},
    allow_internet=False,
    allow_out=("1.1.1.1",),
    allow_host_ports=(5432,),
    machine=MachineRecord("b", "i", 7, 8, AgentAddress("unix", "/x"), {"a": [1, {"b": None}]}),
    agent=AgentAddress("tcp", host="h", port=9),
    attachment={"netns": "x", "data": {"y": 1}},
    owner_key="k",
    volumes=(VolumeMount("data", "/mnt", "v1"),),
    ingress=Ingress(is_public=False, request_host="a:${PORT}", https_ports=(8443,)),
    traffic_token="secret",
    end_reason=EndReason.TIMEOUT,
    on_timeout=OnTimeout.PAUSE,
    auto_resume=True,
    doing="pause",
    paused_at=2.5,
    agent_digest="d",
    saved=Saved("b", "v", {"platform": "p"}, token="s", texts={"/a": "b"}, size_bytes=5),
    last_words="\ud800 lone".encode("utf-8", "replace").decode(),
)


def test_record_survives_the_round_trip():
    assert parse_record(render_record(RECORD)) == RECORD


def test_every_field_of_a_record_is_parsed():
    plain = parse_record(render_record(SandboxRecord("i", State.STARTING, "t")))
    assert plain == SandboxRecord("i", State.STARTING, "t")
    assert len(dataclasses.fields(RECORD)) == 50


async def test_snapshots_survive_the_round_trip_and_are_forgotten(store):
    old = SnapshotRecord("p1", Saved("b", rootfs_digest="r"), name="n", created_at=1.0)
    new = SnapshotRecord("p2", Saved("b", memory=False), deny_out=("1.1.1.1",), created_at=2.0)
    for record in (old, new):
        await store.save_snapshot(record)
    assert await store.snapshots() == [new, old]
    assert await store.forget_snapshot("p1")
    assert not await store.forget_snapshot("p1")
    assert await store.snapshots() == [new]


@given(st.dictionaries(st.text(), st.text()), st.text(), st.floats(0, 1e10))
def test_any_text_survives(metadata, words, when):
    metadata = {k.replace("\0", ""): v.replace("\0", "") for k, v in metadata.items()}
    record = dataclasses.replace(RECORD, metadata=metadata, created_at=when)
    assert parse_record(render_record(record)) == record


@pytest.fixture
async def store(tmp_path):
    store = await Store.open(tmp_path / "d")
    yield store
    await store.close()


async def test_what_is_written_is_there_again(tmp_path, store):
    await store.insert(RECORD)
    await store.put("k", "v")
    engine_id = store.engine_id
    await store.close()
    again = await Store.open(tmp_path / "d")
    assert await again.living() == [RECORD]
    assert await again.get("k") == "v"
    assert again.engine_id == engine_id
    await again.close()


async def test_files_are_private(tmp_path, store):
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d" / "tupper.db").stat().st_mode) == 0o600


async def test_living_names_are_unique_and_ended_ones_free(store):
    await store.insert(RECORD)
    other = dataclasses.replace(RECORD, id="i" + "b" * 20)
    with pytest.raises(AlreadyExists, match="'n'"):
        await store.insert(other)
    await store.save(dataclasses.replace(RECORD, state=State.ENDED, ended_at=10.0))
    await store.insert(other)
    assert (await store.find_ended("n")).id == RECORD.id
    assert [r.id for r in await store.ended(Query())] == [RECORD.id]
    assert await store.forget_ended(10.0) == 0
    assert await store.forget_ended(11.0) == 1


async def test_durability_settings(store):
    def pragmas():
        db = store._connection()
        return [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]

    assert await store._call(pragmas) == ["wal", 2]


async def test_second_store_is_refused_with_the_pid_and_lock_dies_with_its_holder(tmp_path, store):
    with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        await Store.open(tmp_path / "d")
    await store.close()
    await (await Store.open(tmp_path / "d")).close()


async def test_newer_schema_is_refused(tmp_path, store):
    await store.close()
    db = sqlite3.connect(tmp_path / "d" / "tupper.db")
    db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(StoreError, match="999"):
        await Store.open(tmp_path / "d")


async def test_damaged_file_is_a_clear_error(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "d" / "tupper.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match=r"tupper\.db"):
        await Store.open(tmp_path / "d")


async def test_migrations_run_once_and_each_in_order(tmp_path, monkeypatch):
    store = await Store.open(tmp_path / "d")
    await store.insert(RECORD)
    await store.close()
    more = ("ALTER TABLE sandboxes ADD COLUMN extra TEXT;", "UPDATE sandboxes SET extra = 'x';")
    monkeypatch.setattr(module, "MIGRATIONS", (*module.MIGRATIONS, *more))
    store = await Store.open(tmp_path / "d")

    def look():
        db = store._connection()
        return (
            db.execute("PRAGMA user_version").fetchone()[0],
            db.execute("SELECT extra FROM sandboxes").fetchone()[0],
        )

    assert await store._call(look) == (len(module.MIGRATIONS), "x")
    assert await store.living() == [RECORD]
    await store.close()


async def test_failed_migration_changes_nothing(tmp_path, monkeypatch):
    await (await Store.open(tmp_path / "d")).close()
    broken = "CREATE TABLE half (x) STRICT; SELECT * FROM nowhere;"
    monkeypatch.setattr(module, "MIGRATIONS", (*module.MIGRATIONS, broken))
    with pytest.raises(StoreError):
        await Store.open(tmp_path / "d")
    monkeypatch.undo()
    store = await Store.open(tmp_path / "d")
    tables = await store._call(
        lambda: [r[0] for r in store._connection().execute("SELECT name FROM sqlite_master")]
    )
    assert "half" not in tables
    await store.close()


async def test_keys(store):
    await store.add_key(ApiKey("a", b"h", "l", 1.0))
    assert await store.keys() == [ApiKey("a", b"h", "l", 1.0)]
    assert await store.remove_key("a")
    assert not await store.remove_key("a")


MOUNTS = r"""
21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/me/local rw - xfs /dev/sdb1 rw
32 21 0:41 / /mnt/a\040b rw - fuse.sshfs me@host:/ rw
33 21 8:3 / /over rw - ext4 /dev/sdc1 rw
34 33 0:42 / /over rw - cifs //x/y rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/homework", "ext4"),
        ("/home/me/local/d", "xfs"),
        ("/mnt/a b/c", "fuse.sshfs"),
        ("/over/x", "cifs"),
    ],
)
def test_file_system_of_a_path(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


def test_network_file_system_is_refused_with_a_hint(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "refuse_network", refuse_network)
    monkeypatch.setattr("tupper.engine.place.file_system_of", lambda *_: "nfs4")
    with pytest.raises(StoreError, match="nfs4") as error:
        refuse_network(tmp_path)
    assert "TUPPER_HOME" in error.value.hint


def fill(store):
    """From now on the file cannot grow: what SQLite does when the disk is full."""
    db = store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")


async def test_full_disk_is_said_to_be_full_and_damages_nothing(store):
    await store.insert(RECORD)
    await store._call(fill, store)
    big = dataclasses.replace(RECORD, last_words="x" * 200_000)
    with pytest.raises(OutOfDisk, match="full"):
        await store.save(big)
    assert await store.living() == [RECORD]
    await store._call(lambda: store._db.execute("PRAGMA max_page_count = 100000"))
    await store.save(big)
    assert await store.living() == [big]


async def test_damaged_record_is_named(store):
    await store.insert(RECORD)
    for text in ("{", "[]", '{"id": "x", "state": "gone"}'):
        await store._call(store._write, "UPDATE sandboxes SET record = ?", (text,))
        with pytest.raises(StoreError, match=RECORD.id):
            await store.living()


async def test_damaged_page_is_a_store_error(tmp_path):
    store = await Store.open(tmp_path)
    for number in range(50):
        name = f"n{number}"
        await store.insert(dataclasses.replace(RECORD, id=name, name=name, last_words="x" * 3000))
    await store.close()
    path = tmp_path / "tupper.db"
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    path.write_bytes(raw)

    async def look():
        store = await Store.open(tmp_path)
        try:
            await store.living()
        finally:
            await store.close()

    with pytest.raises(StoreError, match="malformed") as caught:
        await look()
    assert "backup" in caught.value.hint


# A directory that was copied.


async def opened(directory):
    store = await Store.open(directory)
    found = store.engine_id, {r.id: r for r in await store.living()}, await store.ended(Query())
    await store.close()
    return found


async def test_a_copy_is_another_engine_and_owns_only_what_is_paused(tmp_path):
    original, copy = tmp_path / "a", tmp_path / "b"
    store = await Store.open(original)
    first = store.engine_id
    for number, state in enumerate((State.STARTING, State.RUNNING, State.PAUSED)):
        sandbox_id = "i" + str(number) * 20
        record = dataclasses.replace(RECORD, id=sandbox_id, name=str(number), state=state)
        await store.insert(record)
    await store.close()
    shutil.copytree(original, copy)

    second, living, ended = await opened(copy)
    assert second != first
    assert {r.end_reason for r in ended} == {EndReason.LEFT_BEHIND}
    assert {r.id[1] for r in ended} == {"0", "1"}
    (paused,) = living.values()
    assert (paused.state, paused.machine, paused.agent, paused.attachment) == (
        State.PAUSED, None, None, None,
    )  # fmt: skip
    assert await opened(copy) == (second, living, ended)
    same, living, ended = await opened(original)
    assert (same, len(living), ended) == (first, 3, [])


async def test_a_directory_that_was_moved_is_the_same_engine(tmp_path):
    before = await opened(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert await opened(tmp_path / "b") == before
    assert await opened(tmp_path / "b") == before


async def test_a_copy_that_is_cut_off_while_it_lets_go_does_it_again(tmp_path, monkeypatch):
    store = await Store.open(tmp_path / "a")
    first = store.engine_id
    await store.insert(RECORD)
    await store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with monkeypatch.context() as patched:
        patched.setattr(module, "new_engine_id", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await Store.open(tmp_path / "b")
    second, living, ended = await opened(tmp_path / "b")
    assert (second != first, len(living), len(ended)) == (True, 0, 1)


def test_a_place_is_the_same_by_its_path_or_by_its_number(tmp_path):
    here = Place.of(tmp_path)
    moved = dataclasses.replace(here, path="/elsewhere")
    mounted_again = dataclasses.replace(here, device=here.device + 1)
    copied = dataclasses.replace(moved, inode=here.inode + 1)
    assert here.is_that_of("")
    assert [p.is_that_of(here.render()) for p in (here, moved, mounted_again, copied)] == [
        True, True, True, False,
    ]  # fmt: skip
