"""Waiting for several things at once, with the plain error of the one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar, cast

from tupper.core.backend import Machine
from tupper.core.errors import DeadlineExceeded, MachineFailed
from tupper.core.lifecycle import ExitReason

_T = TypeVar("_T")


async def together(*coroutines: Coroutine[object, object, object]) -> None:
    """Run all at once. When one fails the others are cancelled; its error is ours."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error


async def unless_ended(machine: Machine, work: Awaitable[_T], *, timeout_s: float, what: str) -> _T:
    """Do something that only a living machine can do, and notice at once when it dies.

    Raises:
        MachineFailed: the machine ended first; with its last words.
        DeadlineExceeded: neither happened in time.
    """
    doing = asyncio.ensure_future(work)
    dying = asyncio.ensure_future(machine.wait())
    try:
        await asyncio.wait({doing, dying}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        if dying.done():
            raise ended(dying.result())
        raise DeadlineExceeded(f"{what} was not over within {timeout_s:g} s")
    finally:
        for task in (doing, dying):
            task.cancel()
        await asyncio.gather(doing, dying, return_exceptions=True)


def ended(reason: ExitReason) -> MachineFailed:
    """The error for a machine that ended while it was needed."""
    text = f"the machine ended ({reason.reason}): {reason.detail or 'no detail'}"
    words = reason.last_words.strip()
    return MachineFailed(f"{text}\n{words[-4096:]}" if words else text)
