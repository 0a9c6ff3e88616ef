"""Which sandboxes a listing shows, in which order, and where the next page begins."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tupper.core.lifecycle import State
from tupper.core.sandbox import SandboxRecord


@dataclass(frozen=True, slots=True)
class Query:
    """What to list.

    Args:
        states: in one of these states.
        metadata: has all of these labels.
        template: made from this template or image; empty for any.
        started_after: at or after this time, unix seconds.
        ascending: oldest first.
        limit: the most on one page.
        owner_key: belongs to this API key; None for anybody's.
        after: (started at, id) of the last one on the page before.
    """

    states: frozenset[State] = frozenset({State.RUNNING, State.PAUSED})
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    template: str = ""
    started_after: float = 0.0
    ascending: bool = False
    limit: int = 100
    owner_key: str | None = None
    after: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing.

    Args:
        records: in order.
        next_after: for the next page's query; None on the last.
    """

    records: tuple[SandboxRecord, ...]
    next_after: tuple[float, str] | None


def select_page(records: Iterable[SandboxRecord], query: Query) -> Page:
    """Filter, sort by (start, id) and cut. Ties are by id, ascending, in both orders.

    Of any number of records no more are held than one page has.
    """
    last = None if query.after is None else _key(*query.after, query)

    def place(record: SandboxRecord) -> tuple[float, str]:
        return _key(record.started_at, record.id, query)

    chosen = (r for r in records if _matches(r, query) and (last is None or place(r) > last))
    found = heapq.nsmallest(query.limit + 1, chosen, key=place)
    page = tuple(found[: query.limit])
    more = len(found) > len(page) and page
    return Page(page, (page[-1].started_at, page[-1].id) if more else None)


def render_ended(query: Query) -> tuple[str, list[object]]:
    """Where the store finds the ended sandboxes of a page, and one more, in order.

    Returns:
        What follows ``WHERE``, and its values. Without a filter it is answered by an index alone.
    """
    terms, values = ["state = 'ended'", "started_at >= ?"], list[object]([query.started_after])
    if query.owner_key is not None:
        terms.append("json_extract(record, '$.owner_key') = ?")
        values.append(query.owner_key)
    if query.template:
        terms.append("? IN (json_extract(record, '$.template'), json_extract(record, '$.image'))")
        values.append(query.template)
    for pair in query.metadata.items():
        each = "json_each(record, '$.metadata') AS label"
        terms.append(f"EXISTS (SELECT 1 FROM {each} WHERE label.key = ? AND label.value = ?)")  # noqa: S608
        values += pair
    if query.after is not None:
        sign, (started_at, sandbox_id) = ">" if query.ascending else "<", query.after
        terms.append(f"(started_at {sign} ? OR (started_at = ? AND id > ?))")
        terms.append(f"started_at {sign}= ?")  # where the index is entered
        values += [started_at, started_at, sandbox_id, started_at]
    order = "ASC" if query.ascending else "DESC"
    tail = f"ORDER BY started_at {order}, id ASC LIMIT ?"
    return f"{' AND '.join(terms)} {tail}", [*values, query.limit + 1]


def _matches(record: SandboxRecord, query: Query) -> bool:
    return (
        record.state in query.states
        and query.owner_key in (None, record.owner_key)
        and record.started_at >= query.started_after
        and query.template in ("", record.template, record.image)
        and all(record.metadata.get(key) == value for key, value in query.metadata.items())
    )


def _key(started_at: float, sandbox_id: str, query: Query) -> tuple[float, str]:
    return (started_at if query.ascending else -started_at, sandbox_id)
