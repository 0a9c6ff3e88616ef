"""What is said when a framework is not installed."""

from __future__ import annotations


def missing(extra: str, error: ImportError) -> ImportError:
    """The error for an adapter whose framework is not there.

    Args:
        extra: of tupper, that brings it.
        error: what its import raised.
    """
    return ImportError(
        f"tupper.integrations.{extra.replace('-', '_')} needs what is not installed ({error}): "
        f"pip install 'tupper[{extra}]'",
        name=error.name,
    )
