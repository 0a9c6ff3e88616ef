"""Which sandboxes a listing shows, in which order, and where the next page begins."""

from __future__ import annotations

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
    """Filter, sort by (start, id) and cut. Ties are by id, ascending, in both orders."""
    chosen = [record for record in records if _matches(record, query)]
    chosen.sort(key=lambda record: _key(record.started_at, record.id, query))
    if query.after is not None:
        last = _key(*query.after, query)
        chosen = [record for record in chosen if _key(record.started_at, record.id, query) > last]
    page = tuple(chosen[: query.limit])
    more = len(chosen) > len(page) and page
    return Page(page, (page[-1].started_at, page[-1].id) if more else None)


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
