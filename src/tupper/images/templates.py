"""Templates: named root filesystems, built from recipes or registered by a build elsewhere.

A recipe's result is stored under ``template:NAME`` together with a key of all that decides it:
the recipe's files, the machine's package sources, the architecture. When the key changes, the
next ``ensure`` builds anew; what runs on the old tree keeps it, ``prune`` takes it later.

Recipes with ``from`` run their commands inside a sandbox, never on this machine's own kernel, so
the engine hands in the ``builder`` that does it.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import AlreadyExists, TemplateError, TemplateNotFound
from tupper.core.log import event
from tupper.images.aptsources import DISTRIBUTION_FILES, Distribution, find_distribution
from tupper.images.catalog import ANY_PLATFORM, TEMPLATE_PREFIX, Images
from tupper.images.child import unpack_layers
from tupper.images.debian import BUILDER, build_debian, layer_digest
from tupper.images.freshness import Kept
from tupper.images.layers import Limits
from tupper.images.manifest import parse_platform
from tupper.images.recipe import Recipe, check_name, read_recipe
from tupper.images.records import Progress, ProgressEvent, TemplateInfo
from tupper.images.store import Reference
from tupper.images.unpack import Layer

# Gets the recipe, what it starts from, an empty directory for the result's ``rootfs``.
Builder = Callable[[Recipe, Rootfs, Path, Progress], Awaitable[ImageConfig]]
_REGISTERED = "registered"


class Templates:
    """The templates of one tupper.

    Args:
        images: where their trees are stored.
        recipe_dirs: directories of recipes; the first that has a name wins.
        builder: runs recipes with ``from``; without it they are refused.
    """

    def __init__(
        self, images: Images, recipe_dirs: Sequence[Path], *, builder: Builder | None = None
    ) -> None:
        self._images = images
        self._recipe_dirs = tuple(recipe_dirs)
        self._builder = builder
        self._read: Kept[Recipe] = Kept()
        self._keys: Kept[str] = Kept()

    async def ensure(
        self, name: str, *, progress: Progress | None = None, force: bool = False
    ) -> Rootfs:
        """The root filesystem of a template, built if it is missing or its recipe changed.

        Raises:
            TemplateNotFound: naming the templates that there are.
            TemplateError: a recipe is wrong, or a step failed; nothing is changed then.
        """
        recipe = self._find_recipe(check_name(name))
        if recipe is None:
            return self._find_registered(name)
        tell = progress or _ignore
        async with self._images.only_one(f"template {name}"):
            base = await self._start_point(recipe, tell)
            key = self._key(recipe, base)
            found = None if force else self._images.find_tree(_reference(name), stamp=key)
            if found is not None:
                return found
            return await self._build(recipe, base, key, tell)

    async def list(self) -> list[TemplateInfo]:
        """All templates by name: recipes, built or not, and registered ones."""
        infos: dict[str, TemplateInfo] = {}
        for name, recipe in self._recipes().items():
            key = await self._current_key(recipe)
            infos[name] = self._describe(name, recipe.description, key)
        for reference in self._images.store.references():
            name = reference.name.removeprefix(TEMPLATE_PREFIX)
            if reference.name.startswith(TEMPLATE_PREFIX) and name not in infos:
                infos[name] = self._describe(name, "", _REGISTERED)
        return [infos[name] for name in sorted(infos)]

    def unbuilt(self) -> Sequence[str]:
        """Recipes whose first use has to build them, which takes a while. Reads little."""
        names = {f.parent.name for d in self._recipe_dirs for f in d.glob("*/template.toml")}
        store = self._images.store
        return sorted(n for n in names if store.reference(_reference(n), ANY_PLATFORM) is None)

    async def remove(self, name: str) -> None:
        """Forget what was built or registered under a name; a recipe stays.

        The tree goes with the next ``prune``, when no sandbox uses it.

        Raises:
            TemplateNotFound: nothing was built or registered.
        """
        reference = self._images.store.reference(_reference(check_name(name)), ANY_PLATFORM)
        if reference is None:
            raise TemplateNotFound(f"template {name} is not built, there is nothing to remove")
        self._images.store.drop_reference(reference)
        event("template.removed", template=name)

    async def register(self, name: str, rootfs: Rootfs) -> None:
        """Give a stored root filesystem a template's name, instead of an earlier one.

        Raises:
            AlreadyExists: a recipe has the name.
        """
        if self._find_recipe(check_name(name)) is not None:
            raise AlreadyExists(f"template {name} is made by a recipe, choose another name")
        self._images.store.prepare()
        self._images.store.add_reference(
            Reference(_reference(name), ANY_PLATFORM, rootfs.digest, _REGISTERED)
        )
        event("template.registered", template=name, digest=rootfs.digest)

    def _recipes(self) -> dict[str, Recipe]:
        found: dict[str, Recipe] = {}
        for directory in self._recipe_dirs:
            for file in sorted(directory.glob("*/template.toml")):
                if file.parent.name not in found:
                    found[file.parent.name] = read_recipe(file.parent)
        return found

    def _find_recipe(self, name: str) -> Recipe | None:
        for directory in self._recipe_dirs:
            place = directory / name
            if (place / "template.toml").is_file():
                return self._read.get(str(place), (place,), functools.partial(read_recipe, place))
        return None

    def _find_registered(self, name: str) -> Rootfs:
        found = self._images.find_tree(_reference(name), stamp=_REGISTERED)
        if found is not None:
            return found
        stored = {
            item.name.removeprefix(TEMPLATE_PREFIX)
            for item in self._images.store.references()
            if item.stamp == _REGISTERED
        }
        known = ", ".join(sorted({*self._recipes(), *stored}))
        raise TemplateNotFound(f"there is no template {name}; known: {known or 'none'}")

    async def _start_point(self, recipe: Recipe, progress: Progress) -> Rootfs | None:
        """What a recipe with ``from`` starts from; a template's name wins over an image's."""
        if not recipe.base:
            return None
        if recipe.base == recipe.name:
            raise TemplateError(f"template {recipe.name} starts from itself")
        if self._find_recipe(recipe.base) is not None:
            return await self.ensure(recipe.base, progress=progress)
        return await self._images.ensure(recipe.base, progress=progress)

    def _key(self, recipe: Recipe, base: Rootfs | None) -> str:
        platform = str(parse_platform(None))
        if base is not None:
            return recipe.digest("from 1", base.digest, platform)

        def digest() -> str:
            sources = "\n".join(source.render() for source in find_distribution().sources)
            return recipe.digest(BUILDER, sources, platform)

        where = recipe.directory
        return self._keys.get(f"{platform} {where}", (where, *DISTRIBUTION_FILES), digest)

    async def _current_key(self, recipe: Recipe) -> str:
        base = await self._images.lookup(recipe.base) if recipe.base else None
        return "" if recipe.base and base is None else self._key(recipe, base)

    async def _build(
        self, recipe: Recipe, base: Rootfs | None, key: str, progress: Progress
    ) -> Rootfs:
        progress(ProgressEvent(f"building template {recipe.name}"))
        # A rebuild by force is another tree: sandboxes may still run on the one before.
        digest = f"sha256:{hashlib.sha256(f'{key} {secrets.token_hex(16)}'.encode()).hexdigest()}"
        async with self._images.staging() as stage:
            if base is None:
                config = await self._build_debian(recipe, find_distribution(), stage, progress)
            elif self._builder is None:
                raise TemplateError(f"template {recipe.name} can only be built by the engine")
            else:
                config = await self._builder(recipe, base, stage, progress)
            progress(ProgressEvent("storing"))
            rootfs = await self._images.add_tree(
                digest, stage / "rootfs", config, _reference(recipe.name), stamp=key
            )
        event("template.built", template=recipe.name, digest=digest)
        return rootfs

    async def _build_debian(
        self, recipe: Recipe, distribution: Distribution, stage: Path, progress: Progress
    ) -> ImageConfig:
        prefix = self._images.store.prefix
        made = await build_debian(
            recipe,
            distribution,
            stage,
            cache_dir=self._images.cache_dir,
            as_root=not prefix,
            progress=progress,
        )
        if made.suffix == ".tar":
            digest, size = await asyncio.to_thread(layer_digest, made)
            (stage / "rootfs").mkdir(mode=0o755)
            layers = [Layer(made, digest, size, digest)]
            await unpack_layers(
                stage / "rootfs",
                layers,
                prefix=prefix,
                limits=Limits(),
                on_bytes=lambda done: progress(ProgressEvent("unpacking", done, size)),
            )
        return recipe.config

    def _describe(self, name: str, description: str, key: str) -> TemplateInfo:
        reference = self._images.store.reference(_reference(name), ANY_PLATFORM)
        stored = None if reference is None else self._images.store.read(reference.digest)
        if reference is None or stored is None:
            return TemplateInfo(name, "", 0.0, 0, description, is_current=False)
        return TemplateInfo(
            name=name,
            digest=reference.digest,
            built_at=stored.created_at,
            size_bytes=stored.rootfs.size_bytes,
            description=description,
            is_current=reference.stamp == key,
        )


def _reference(name: str) -> str:
    return f"{TEMPLATE_PREFIX}{name}"


def _ignore(_: ProgressEvent) -> None:
    pass
