"""The fixtures of :mod:`images_registry`."""

from images_registry import images, layout, private_registry, registry

__all__ = ["images", "layout", "private_registry", "registry"]
