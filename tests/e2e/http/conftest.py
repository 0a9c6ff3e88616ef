"""A real ``tupper serve`` with a key."""

from e2e.serving import served

__all__ = ["served"]
