"""One text for both halves of the SDK: what is written for asyncio, done at once without it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from tupper import AsyncSandbox, Sandbox

P = ParamSpec("P")
T = TypeVar("T")


class _Awaited:
    """An object of the SDK whose methods can be awaited; they end before the first wait."""

    def __init__(self, blocking: object) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> object:
        value: object = getattr(self._blocking, name)
        if not callable(value):
            return _Awaited(value)  # commands, files
        method = cast("Callable[..., object]", value)

        async def call(*args: object, **kwargs: object) -> object:
            return method(*args, **kwargs)

        return call


def awaited(sandbox: Sandbox) -> AsyncSandbox:
    """A sandbox for what is written for asyncio."""
    return cast("AsyncSandbox", _Awaited(sandbox))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Do what waits for nothing but sandboxes that were made awaitable, and give its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    work.close()
    raise RuntimeError(f"{work!r} waits for a loop")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method of an object whose ``half`` has this one for asyncio, and an awaited sandbox."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return at_once(method(self.half, *args, **kwargs))

    return call
