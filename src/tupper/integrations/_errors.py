"""Errors of the SDK as those of a framework."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

from tupper import SandboxException


@contextlib.contextmanager
def becoming(make: Callable[[Exception], Exception], *kinds: type[Exception]) -> Generator[None]:
    """What is raised inside becomes another error, which has it as its cause.

    Args:
        make: the other one.
        kinds: of errors that become others.
    """
    try:
        yield
    except kinds as error:
        raise make(error) from error


def raising(
    kind: Callable[..., Exception], *kinds: type[Exception], **facts: object
) -> contextlib.AbstractContextManager[None]:
    """What is raised inside becomes an error of a kind that takes its cause as ``cause``.

    Args:
        kind: the framework's.
        kinds: of errors that become others; Python's about files and the SDK's if none is given.
        facts: what else the framework's error takes.
    """
    whats = kinds or (OSError, SandboxException)
    return becoming(lambda error: kind(cause=error, **facts), *whats)
