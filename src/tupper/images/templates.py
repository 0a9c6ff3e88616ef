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
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import AlreadyExists, TemplateError, TemplateNotFound
from tupper.core.log import event
from tupper.images.aptsources import DISTRIBUTION_FILES, Distribution, find_distribution
from tupper.images.catalog import (
    ANY_PLATFORM,
    TEMPLATE_PREFIX,
    Images,
    render_reference,
)
from tupper.images.child import unpack_layers
from tupper.images.debian import BUILDER, build_debian, layer_digest
from tupper.images.freshness import Kept
from tupper.images.layers import Limits
from tupper.images.manifest import parse_platform
from tupper.images.recipe import Recipe, read_recipe
from tupper.images.records import Progress, ProgressEvent, TemplateInfo, TemplateTag
from tupper.images.store import Reference
from tupper.images.unpack import Layer
from tupper.protocol.naming import (
    DEFAULT_TAG,
    check_name,
    check_tag,
    is_build_id,
    parse_template,
)

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

        Args:
            name: of the template, perhaps with ``:TAG``.
            progress: told what happens.
            force: build a recipe again.

        Raises:
            TemplateNotFound: naming the templates that there are.
            TemplateError: a recipe is wrong, or a step failed; nothing is changed then.
        """
        name, tag = parse_template(name)
        recipe = self._find_recipe(name)
        if recipe is None or tag != DEFAULT_TAG:
            return self._find_registered(name, tag)
        tell = progress or _ignore
        async with self._images.only_one(f"template {name}"):
            base = await self._start_point(recipe, tell)
            key = self._key(recipe, base)
            found = None if force else self._images.find_tree(render_reference(name), stamp=key)
            if found is not None:
                return found
            return await self._build(recipe, base, key, tell)

    async def peek(self, name: str) -> Rootfs | None:
        """The root filesystem of a template if there is a current one; builds nothing."""
        name, tag = parse_template(name)
        recipe = self._find_recipe(name)
        if recipe is None or tag != DEFAULT_TAG:
            return self._find_registered(name, tag)
        key = await self._current_key(recipe)
        return self._images.find_tree(render_reference(name), stamp=key) if key else None

    async def list(self) -> list[TemplateInfo]:
        """All templates by name: recipes, built or not, and registered ones."""
        infos: dict[str, TemplateInfo] = {}
        for name, recipe in self._recipes().items():
            key = await self._current_key(recipe)
            infos[name] = self._describe(name, recipe.description, key)
        for reference in self._images.store.references():
            name, _, _ = reference.name.removeprefix(TEMPLATE_PREFIX).partition(":")
            if reference.name.startswith(TEMPLATE_PREFIX) and name not in infos:
                infos[name] = self._describe(name, "", None)
        return [infos[name] for name in sorted(infos)]

    def info(self, name: str) -> TemplateInfo:
        """One template that was built; a recipe also if it was not.

        Raises:
            TemplateNotFound: there is none.
        """
        name, _ = parse_template(name)
        recipe = self._find_recipe(name)
        found = self._describe(name, recipe.description if recipe else "", None)
        if recipe is None and not found.tags:
            raise self._not_found(name)
        return found

    def is_recipe(self, name: str) -> bool:
        """Whether a name is a recipe's."""
        return self._find_recipe(check_name(name)) is not None

    def unbuilt(self) -> Sequence[str]:
        """Recipes whose first use has to build them, which takes a while. Reads little."""
        names = {f.parent.name for d in self._recipe_dirs for f in d.glob("*/template.toml")}
        built = {reference.name for reference in self._images.store.references()}
        return sorted(name for name in names if render_reference(name) not in built)

    async def remove(self, name: str) -> None:
        """Forget what was built or registered under a name, whatever its tags; a recipe stays.

        The trees go with the next ``prune``, when no sandbox uses them.

        Raises:
            TemplateNotFound: nothing was built or registered.
        """
        references = list(self._references(check_name(name)))
        if not references:
            raise TemplateNotFound(f"template {name} is not built, there is nothing to remove")
        for reference in references:
            self._images.store.drop_reference(reference)
        event("template.removed", template=name)

    async def register(
        self, name: str, rootfs: Rootfs, *, tag: str = DEFAULT_TAG, build_id: str = ""
    ) -> None:
        """Give a stored root filesystem a template's name and tag, instead of an earlier one.

        Raises:
            AlreadyExists: a recipe has the name.
        """
        if self._find_recipe(check_name(name)) is not None:
            raise AlreadyExists(f"template {name} is made by a recipe, choose another name")
        self._images.store.prepare()
        stamp = f"{_REGISTERED} {build_id or uuid.uuid4()} {time.time():.6f}"
        self._images.store.add_reference(
            Reference(render_reference(name, check_tag(tag)), ANY_PLATFORM, rootfs.digest, stamp)
        )
        event("template.registered", template=name, tag=tag, digest=rootfs.digest)

    def untag(self, name: str, tag: str) -> None:
        """Forget a tag; without one nothing happens."""
        reference = self._images.store.reference(render_reference(name, tag), ANY_PLATFORM)
        if reference is not None:
            self._images.store.drop_reference(reference)

    def tags(self, name: str) -> Sequence[TemplateTag]:
        """What was built under a name, by tag, the default one first. Empty if nothing was."""
        found = [_tag_of(reference) for reference in self._references(check_name(name))]
        return sorted(found, key=lambda each: (each.tag != DEFAULT_TAG, each.tag))

    def _references(self, name: str) -> Iterator[Reference]:
        plain = render_reference(name)
        for reference in self._images.store.references():
            if reference.name == plain or reference.name.startswith(f"{plain}:"):
                yield reference

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

    def _find_registered(self, name: str, tag: str) -> Rootfs:
        if is_build_id(tag):
            built = (each for each in self._references(name) if _tag_of(each).build_id == tag)
            reference = next(built, None)
        else:
            reference = self._images.store.reference(render_reference(name, tag), ANY_PLATFORM)
        if reference is not None and reference.stamp.split(" ")[0] == _REGISTERED:
            found = self._images.find_tree(reference.name, stamp=reference.stamp)
            if found is not None:
                return found
        raise self._not_found(name if tag == DEFAULT_TAG else f"{name}:{tag}")

    def _not_found(self, what: str) -> TemplateNotFound:
        stored = {
            item.name.removeprefix(TEMPLATE_PREFIX)
            for item in self._images.store.references()
            if item.stamp.split(" ")[0] == _REGISTERED
        }
        known = ", ".join(sorted({*self._recipes(), *stored}))
        return TemplateNotFound(f"there is no template {what}; known: {known or 'none'}")

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
        """The key that a build now would have; empty if what it starts from is not there."""
        if not recipe.base:
            return self._key(recipe, None)
        is_template = self._find_recipe(recipe.base) is not None and recipe.base != recipe.name
        base = await (self.peek(recipe.base) if is_template else self._images.lookup(recipe.base))
        return "" if base is None else self._key(recipe, base)

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
                digest, stage / "rootfs", config, render_reference(recipe.name), stamp=key
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

    def _describe(self, name: str, description: str, key: str | None) -> TemplateInfo:
        """What there is of a template; ``key`` is that of its recipe as it is now."""
        is_recipe = self._find_recipe(name) is not None
        tags = tuple(self.tags(name))
        for tag in tags:
            reference = self._images.store.reference(render_reference(name, tag.tag), ANY_PLATFORM)
            stored = self._images.store.read(tag.digest)
            if reference is None or stored is None:
                continue
            return TemplateInfo(
                name=name,
                digest=tag.digest,
                built_at=stored.created_at,
                size_bytes=stored.rootfs.size_bytes,
                description=description,
                is_current=not is_recipe or reference.stamp == key,
                tags=tags,
                is_recipe=is_recipe,
            )
        return TemplateInfo(
            name, "", 0.0, 0, description, is_current=False, tags=tags, is_recipe=is_recipe
        )


def _tag_of(reference: Reference) -> TemplateTag:
    _, _, tag = reference.name.removeprefix(TEMPLATE_PREFIX).partition(":")
    kind, _, rest = reference.stamp.partition(" ")
    build_id, _, created_at = rest.partition(" ")
    if kind != _REGISTERED or not created_at:
        # A recipe's, or of a time when builds had no id.
        build_id, created_at = str(uuid.uuid5(uuid.NAMESPACE_OID, reference.digest)), "0"
    return TemplateTag(tag or DEFAULT_TAG, build_id, float(created_at), reference.digest)


def _ignore(_: ProgressEvent) -> None:
    pass
