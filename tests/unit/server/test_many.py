"""A hundred thousand sandboxes in one list: page by page, by an index, with a page in memory."""

import dataclasses
import sqlite3
import time
import tracemalloc

import httpx2
import pytest

from integration.engine.world import InProcess, World
from tupper import AsyncSandbox, SandboxQuery, SandboxState
from tupper.core.lifecycle import EndReason, State
from tupper.core.paths import make_private
from tupper.core.sandbox import SandboxRecord
from tupper.engine.listing import Query, render_ended, select_page
from tupper.engine.record import render_record
from tupper.engine.store import Store
from tupper.protocol.e2b import render_token
from unit.server.serving import serving

MANY = 100_000
PEAK = 24 * 1024 * 1024  # a fifth of what the records take


def sandbox_id(number):
    return f"i{number:020}"


def fill(path, began):
    """Rows as the store would have written them, in one go."""
    base = SandboxRecord(
        "ID",
        State.ENDED,
        "t",
        metadata={"half": "HALF", "a.b\"'c": "d"},
        end_reason=EndReason.KILLED,
    )
    text = render_record(base).replace('"started_at":0.0', '"started_at":AT')
    assert "AT" in text

    def rows():
        for number in range(MANY):
            at = began + number // 2  # every two began together
            filled = text.replace("ID", sandbox_id(number), 1).replace("AT", str(at))
            record = filled.replace("HALF", str(number % 2))
            yield sandbox_id(number), "", "ended", at, time.time(), record, at

    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.executemany("INSERT INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
    db.execute("COMMIT")
    db.close()


@pytest.fixture(scope="module")
def began():
    return float(int(time.time()) - MANY)


@pytest.fixture(scope="module")
def data(tmp_path_factory, began):
    """A data directory with that many ended sandboxes."""
    import asyncio

    world = World(tmp_path_factory.mktemp("many"), InProcess())
    make_private(world.paths.data)

    async def make():
        await (await Store.open(world.paths.data)).close()

    asyncio.run(make())
    fill(world.paths.data / "tupper.db", began)
    return world


@pytest.fixture
async def many(data):
    async with serving(data):
        yield data


@pytest.fixture
async def http(many):
    transport = httpx2.AsyncHTTPTransport(uds=str(many.paths.socket))
    async with httpx2.AsyncClient(transport=transport, base_url="http://t", timeout=60) as client:
        yield client


async def page(http, **query):
    answer = await http.get("/v2/sandboxes", params={"state": "ended", "limit": 100, **query})
    assert answer.status_code == 200, answer.text
    return [int(s["sandboxID"][1:]) for s in answer.json()], answer.headers.get("X-Next-Token")


def in_order(numbers, *, ascending):
    """Of two that began together the lower id comes first, in both orders."""
    return sorted(numbers, key=lambda n: (n // 2 if ascending else -(n // 2), n))


async def test_pages_follow_each_other(http):
    for order, first in (("desc", range(MANY - 250, MANY)), ("asc", range(250))):
        found, token = await page(http, order=order)
        while len(found) < 250:
            more, token = await page(http, order=order, nextToken=token, limit=75)
            found += more
        assert found == in_order(first, ascending=order == "asc")
        assert token


async def test_the_last_page_is_as_near_as_the_first(http, began):
    token = render_token((began + 50, sandbox_id(100)), ascending=False)
    found, after = await page(http, nextToken=token)
    assert found == [101, *in_order(range(100), ascending=False)][:100]
    found, after = await page(http, nextToken=after)
    assert (found, after) == ([1], None)


async def test_filters_look_at_all_of_them(http, began):
    found, _ = await page(http, metadata="half=1", order="asc")
    assert found == list(range(1, 201, 2))
    found, token = await page(http, metadata="half=2")
    assert (found, token) == ([], None)
    found, _ = await page(http, metadata="a.b\"'c=d", template="nothing")
    assert found == []


async def test_no_more_than_a_page_is_in_memory(http):
    await page(http)
    tracemalloc.start()
    try:
        for query in ({}, {"order": "asc"}, {"metadata": "half=2"}, {"state": "running,ended"}):
            await page(http, **query)
        assert tracemalloc.get_traced_memory()[1] < PEAK
    finally:
        tracemalloc.stop()


async def test_an_index_has_them_in_order(many):
    """Whatever the number of rows, a page without a filter reads those of the page."""
    for ascending in (False, True):
        for after in (None, (5.0, "i")):
            where, values = render_ended(Query(ascending=ascending, after=after))

            def explain(where=where, values=values):
                query = f"EXPLAIN QUERY PLAN SELECT id, record FROM sandboxes WHERE {where}"
                rows = many.engine.store._connection().execute(query, values)
                return " ".join(str(row[3]) for row in rows)

            plan = await many.engine.store._call(explain)
            assert "USING INDEX " + ("oldest" if ascending else "newest") in plan
            assert "TEMP B-TREE" not in plan


async def test_the_sdk_turns_the_pages(many):
    query = SandboxQuery(state=[SandboxState.ENDED])
    pages = AsyncSandbox.list(query, api_url=f"unix:{many.paths.socket}")
    found = await pages.next_items() + await pages.next_items()
    assert [int(info.sandbox_id[1:]) for info in found] == in_order(
        range(MANY - 200, MANY), ascending=False
    )
    assert found[0].metadata["a.b\"'c"] == "d"


def test_paused_ones_are_paged_without_a_copy():
    base = SandboxRecord("i", State.PAUSED, "t")
    records = [dataclasses.replace(base, id=sandbox_id(n), started_at=n) for n in range(20_000)]
    tracemalloc.start()
    try:
        found = select_page(records, Query(limit=100))
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert [record.started_at for record in found.records] == list(range(19_999, 19_899, -1))
    assert found.next_after == (19_900, sandbox_id(19_900))
