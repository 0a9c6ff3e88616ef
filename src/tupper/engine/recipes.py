"""Recipes of templates that start from another one: their commands run inside a sandbox."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import TemplateError
from tupper.engine.context import Context
from tupper.engine.creation import remove_tree
from tupper.engine.flat import flatten
from tupper.engine.workshop import build_directory, files_of, open_workshop
from tupper.images import Progress, ProgressEvent
from tupper.images.recipe import Recipe

_INSTALL = "apt-get update && apt-get install -y --no-install-recommends"
_CLEAN = "apt-get clean && rm -rf /var/lib/apt/lists/*"


class RecipeBuilder:
    """What the templates call; made before the engine that it works for."""

    def __init__(self) -> None:
        self._context: Context | None = None

    def bind(self, context: Context) -> None:
        """Work for this engine."""
        self._context = context

    async def __call__(
        self, recipe: Recipe, base: Rootfs, stage: Path, progress: Progress
    ) -> ImageConfig:
        """Build."""
        if self._context is None:
            raise TemplateError(f"template {recipe.name} can only be built by the engine")
        return await build_recipe(self._context, recipe, base, stage, progress)


async def build_recipe(
    context: Context, recipe: Recipe, base: Rootfs, stage: Path, progress: Progress
) -> ImageConfig:
    """Build a recipe with ``from`` into ``stage / "rootfs"``.

    Raises:
        TemplateError: naming the command that failed.
    """
    commands = list(recipe.commands)
    if recipe.packages:
        commands.insert(0, f"{_INSTALL} {' '.join(recipe.packages)} && {_CLEAN}")
    build_directory(context).mkdir(mode=0o700, parents=True, exist_ok=True)
    place = build_directory(context) / f"tmp-{secrets.token_hex(8)}"
    place.mkdir(mode=0o700)
    try:
        layer = place / "layer"
        async with open_workshop(context, [base.path], base.config, layer) as workshop:
            await workshop.upload("/", _once(recipe.tar({})), user="root")
            for command in commands:
                progress(ProgressEvent(command))
                status = await workshop.run(
                    [*recipe.shell, "-c", command],
                    env=dict(recipe.config.env),
                    cwd="/",
                    user="root",
                    on_output=lambda data: _show(data, progress),
                )
                if status:
                    raise TemplateError(f"template {recipe.name}: exit status {status}: {command}")
        await flatten([base.path, files_of(layer)], stage)
    finally:
        await asyncio.shield(remove_tree(place))
    return recipe.config


def _show(data: bytes, progress: Progress) -> None:
    for line in data.decode(errors="replace").splitlines():
        progress(ProgressEvent(line))


async def _once(data: bytes) -> AsyncGenerator[bytes]:
    yield data
