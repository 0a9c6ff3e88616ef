"""One name, two calls: ``Sandbox.kill("i…")`` and ``sandbox.kill()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class class_method_variant(Generic[P, R]):  # noqa: N801 - reads as a decorator
    """Decorates the instance's method; on the class, another class method answers.

    Args:
        class_method_name: of the class method that answers there.
    """

    def __init__(self, class_method_name: str) -> None:
        self._name = class_method_name
        self._method: Callable[..., object] | None = None

    def __call__(self, method: Callable[P, R]) -> Callable[P, R]:
        """Decorate."""
        self._method = method
        update_wrapper(self, method)  # type: ignore[arg-type]
        return self  # type: ignore[return-value]

    def __get__(self, instance: object | None, owner: type) -> object:
        """The bound method, or the class method."""
        if instance is None or self._method is None:
            return getattr(owner, self._name)
        return self._method.__get__(instance, owner)
