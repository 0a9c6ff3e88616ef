"""Layers of builds: what every kind of build stands on.

Each step that writes makes one layer: a directory with what the step changed, stacked by overlayfs
on the ones below and kept in ``data/build`` under a key of all that decided it. A step whose layer
is there is not run again. In the end the stack is copied into one tree for the image store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import InvalidArgument, PermissionDenied, TemplateNotFound
from tupper.engine.context import Context
from tupper.engine.flat import flatten
from tupper.engine.inside import Inside
from tupper.engine.workshop import build_directory, files_of, open_workshop
from tupper.images import ProgressEvent
from tupper.images.catalog import render_reference
from tupper.protocol.dockerfile import DEFAULT_SHELL
from tupper.protocol.naming import DEFAULT_TAG
from tupper.protocol.reference import names_host_files

Log = Callable[[str], None]
CheckUse = Callable[[str], None]
_VERSION = "build 2"


@dataclass(frozen=True, slots=True)
class Stack:
    """An image in the making.

    Args:
        key: of all that decided it.
        layers: directories, the lowest first.
        config: what it says about processes.
        shell: for the shell forms of a Dockerfile.
    """

    key: str
    layers: tuple[Path, ...]
    config: ImageConfig
    shell: tuple[str, ...] = DEFAULT_SHELL

    def then(self, *parts: str) -> str:
        """The key after one more step."""
        text = json.dumps([self.key, *parts])
        return hashlib.sha256(text.encode()).hexdigest()


class Layers:
    """Makes stacks for one build.

    Args:
        context: of the engine.
        log: gets lines of text.
        host_images: whether an image in a file of the host may be named.
        check_use: raises for a template that this build may not start from.
    """

    def __init__(
        self, context: Context, log: Log, *, host_images: bool, check_use: CheckUse
    ) -> None:
        self._context = context
        self._log = log
        self._host_images = host_images
        self._check_use = check_use

    def empty(self) -> Stack:
        """Nothing, to start from."""
        empty = build_directory(self._context) / "scratch"
        empty.mkdir(mode=0o755, parents=True, exist_ok=True)
        return Stack(_VERSION, (empty,), ImageConfig())

    async def template(self, name: str) -> Stack:
        """A template, to start from.

        Raises:
            TemplateNotFound: there is none.
        """
        self._check_use(name)
        return _ground(await self._context.parts.templates.ensure(name, progress=self._progress))

    async def image(self, reference: str) -> Stack:
        """An image, to start from; pulled if need be.

        Raises:
            PermissionDenied: it is in a file of the host, and may not be.
        """
        if not self._host_images and names_host_files(reference):
            raise PermissionDenied(
                f"FROM {reference}: an image from a file of the host can be used only on the "
                "machine itself"
            )
        return _ground(await self._context.parts.images.ensure(reference, progress=self._progress))

    async def base(self, name: str) -> Stack:
        """A template of that name, or else an image."""
        try:
            return await self.template(name)
        except (TemplateNotFound, InvalidArgument):
            return await self.image(name)

    async def add(
        self,
        stack: Stack,
        key: str,
        work: Callable[[Inside], Awaitable[None]],
        *,
        force: bool = False,
    ) -> Stack:
        """One more layer: the kept one, or a new one made in a workshop.

        Args:
            stack: what it goes on.
            key: of the result; see :meth:`Stack.then`.
            work: makes the layer's changes.
            force: make a new one.
        """
        layer = build_directory(self._context) / key
        async with self._context.parts.images.only_one(f"layer {key}"):
            if force and layer.exists():
                layer.rename(layer.with_name(f"tmp-old-{key[:16]}"))
            if files_of(layer).is_dir():
                self._log("unchanged")
            else:
                async with open_workshop(
                    self._context, stack.layers, stack.config, layer
                ) as workshop:
                    await work(workshop)
        return replace(stack, key=key, layers=(*stack.layers, files_of(layer)))

    async def store(self, stack: Stack, name: str, tag: str = DEFAULT_TAG) -> Rootfs:
        """Copy a stack into one tree in the image store, for a template's name and tag."""
        images, config = self._context.parts.images, stack.config
        facts = json.dumps([dict(config.env), config.workdir, config.user,
                            config.entrypoint, config.cmd, dict(config.labels),
                            config.exposed_ports, config.start, config.ready,
                            config.cpus, config.memory_mib])  # fmt: skip
        digest = "sha256:" + stack.then("RESULT", facts)
        found = await images.lookup(digest)
        if found is None:
            self._log("storing")
            async with images.staging() as stage:
                await flatten(stack.layers, stage)
                found = await images.add_tree(
                    digest, stage / "rootfs", config, render_reference(name, tag)
                )
        return found

    def _progress(self, event: ProgressEvent) -> None:
        # Only what is said in words: bytes would fill the log.
        if event.total_bytes is None:
            self._log(event.message)


def _ground(rootfs: Rootfs) -> Stack:
    return Stack(f"{_VERSION} {rootfs.digest}", (rootfs.path,), rootfs.config)
