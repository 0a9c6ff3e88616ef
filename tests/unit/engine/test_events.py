"""The ring of events: who listens is a number, and is told when something is missing."""

import asyncio

import pytest

from tupper.core.lifecycle import EndReason, State
from tupper.core.sandbox import SandboxRecord
from tupper.engine.events import Events, Kind


def record(name="a", **more):
    return SandboxRecord("i" + name.rjust(20, "0"), State.RUNNING, "t", name=name, **more)


def told(events, number):
    return [(event.number, str(event.kind), event.name) for event in events.since(number)]


def test_numbers_count_up_and_a_listener_goes_on_after_its_own():
    events = Events()
    events.publish(Kind.CREATED, record("a"))
    events.publish(Kind.PAUSED, record("b"))
    assert told(events, 0) == [(1, "created", "a"), (2, "paused", "b")]
    assert told(events, 1) == [(2, "paused", "b")]
    assert told(events, 2) == []
    assert events.last == 2


def test_why_it_ended_is_told():
    events = Events()
    events.publish(Kind.ENDED, record(end_reason=EndReason.TIMEOUT, end_detail="its time was over"))
    (event,) = events.since(0)
    assert (event.reason, event.detail) == ("timeout", "its time was over")


def test_sandboxes_of_builds_are_nobodys_business():
    events = Events()
    events.publish(Kind.CREATED, record(purpose="build"))
    assert events.since(0) == []


def test_who_was_away_for_too_long_is_told_so():
    events = Events(kept=2)
    for name in "abcd":
        events.publish(Kind.CREATED, record(name))
    assert told(events, 1) == [(2, "lost", ""), (3, "created", "c"), (4, "created", "d")]
    assert told(events, 2) == [(3, "created", "c"), (4, "created", "d")]


@pytest.mark.parametrize(
    "place", ["", "x", "-3", "other-1", "{mark}-", "{mark}-x", "{mark}--1", "{mark}-²"]
)
def test_a_place_of_another_process_or_none_at_all_may_have_missed_something(place):
    events = Events()
    events.publish(Kind.CREATED, record())
    assert events.find(place.format(mark=events.mark)) == -1
    assert [kind for _, kind, _ in told(events, -1)] == ["lost", "created"]


def test_a_place_is_found_again_and_never_lies_in_the_future():
    events = Events()
    events.publish(Kind.CREATED, record())
    assert events.find(events.place_of(0)) == 0
    assert events.find(events.place_of(9)) == 1


async def test_all_listeners_wake():
    events = Events()
    waiting = [asyncio.ensure_future(events.wait(0)) for _ in range(3)]
    late = asyncio.ensure_future(events.wait(1))
    await asyncio.sleep(0)
    events.publish(Kind.CREATED, record())
    await asyncio.gather(*waiting)
    assert not late.done()
    events.close()
    await late
    await events.wait(7)
