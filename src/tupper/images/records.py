"""What the store says about images and templates, and the progress of getting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One step of something that takes long.

    Args:
        message: for people, one line.
        done_bytes, total_bytes: where bytes can be counted.
    """

    message: str
    done_bytes: int | None = None
    total_bytes: int | None = None


Progress = Callable[[ProgressEvent], None]


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image in the store.

    Args:
        digest: its key.
        references: the names it was got by, sorted.
        size_bytes: on disk.
        created_at, last_used: seconds since 1970.
    """

    digest: str
    references: tuple[str, ...]
    size_bytes: int
    created_at: float
    last_used: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """What ``prune`` took away.

    Args:
        removed: digests.
        freed_bytes: on disk, of images and of what interrupted pulls had left.
    """

    removed: tuple[str, ...]
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class TemplateTag:
    """A name for one build of a template.

    Args:
        tag: of the template.
        build_id: a UUID.
        created_at: when the tag was given, seconds since 1970.
        digest: of the root filesystem.
    """

    tag: str
    build_id: str
    created_at: float
    digest: str


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """A template: a recipe, or something that was registered under a name.

    Args:
        name: of the template.
        digest: of its root filesystem; empty if it was not built yet.
        built_at: seconds since 1970; 0 if it was not built yet.
        size_bytes: on disk.
        description: one line.
        is_current: whether it was built from the recipe as it is now.
        tags: of what was built, the default one first.
        is_recipe: whether it is one of the recipes.
    """

    name: str
    digest: str
    built_at: float
    size_bytes: int
    description: str
    is_current: bool
    tags: tuple[TemplateTag, ...] = ()
    is_recipe: bool = False
