"""One name, two calls: ``Sandbox.kill("i…")`` and ``sandbox.kill()``."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast, overload

S = TypeVar("S")
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class Both(Generic[S, P, Q, R, T]):
    """A method that names its sandbox when called on the class, and is it otherwise.

    Args:
        by_id: called with the class; for calls on the class.
        own: called with the instance; for calls on it.
    """

    def __init__(
        self,
        by_id: Callable[Concatenate[type[S], P], R],
        own: Callable[Concatenate[S, Q], T],
    ) -> None:
        self._by_id = by_id
        self._own = own
        self.__doc__ = own.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Callable[P, R]: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[Q, T]: ...

    def __get__(self, instance: S | None, owner: type[S]) -> Callable[P, R] | Callable[Q, T]:
        """The method bound to the instance, or the other one bound to the class."""
        if instance is None:
            return cast("Callable[P, R]", MethodType(self._by_id, owner))
        return cast("Callable[Q, T]", MethodType(self._own, instance))
