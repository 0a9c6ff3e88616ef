"""Building a template from a Dockerfile, inside sandboxes.

Each RUN and COPY makes one layer (:mod:`tupper.engine.stack`) under a key of all that decided it:
base, steps so far, contents of copied files.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tupper.core.backend import ImageConfig, Rootfs
from tupper.core.errors import TemplateError
from tupper.engine.context import Context
from tupper.engine.copying import Item, Source, copy_in, items_of
from tupper.engine.inside import Inside
from tupper.engine.stack import CheckUse, Layers, Stack
from tupper.images import context as files
from tupper.protocol import dockerfile as df

Emit = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to build.

    Args:
        name: of the template.
        dockerfile: its text.
        context: the directory that COPY takes files from; None for none.
        arguments: for ARG.
        force: run every step again.
        host_images: whether FROM may name an image in a file of the host.
        check_use: raises for a template that FROM may not name.
    """

    name: str
    dockerfile: str
    context: Path | None = None
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    force: bool = False
    host_images: bool = True
    check_use: CheckUse = lambda _: None


async def build(context: Context, recipe: Recipe, emit: Emit) -> Rootfs:
    """Build a template and register it.

    Raises:
        TemplateError: naming the line of the Dockerfile that is wrong or failed.
    """
    parsed = df.parse_dockerfile(recipe.dockerfile)
    builder = _Builder(context, recipe, parsed, emit)
    async with context.gate.use():
        stack = await builder.stage(len(parsed.stages) - 1)
        return await builder.store(stack)


class _Builder:
    def __init__(self, context: Context, recipe: Recipe, parsed: df.Dockerfile, emit: Emit) -> None:
        self._context = context
        self._recipe = recipe
        self._parsed = parsed
        self._emit = emit
        self._layers = Layers(
            context, self._log, host_images=recipe.host_images, check_use=recipe.check_use
        )
        self._outer = df.global_args(parsed, recipe.arguments)
        self._stages: dict[int, Stack] = {}
        self._listed: list[str] | None = None

    def _log(self, text: str) -> None:
        self._emit({"event": "log", "message": text})

    async def stage(self, number: int) -> Stack:
        """The result of a stage, built once."""
        if number in self._stages:
            return self._stages[number]
        stage = self._parsed.stages[number]
        stack = await self._base(df.expand(stage.base, self._outer.get), number)
        steps = df.expand_stage(
            stage,
            build_args=self._recipe.arguments,
            outer=self._outer,
            env=stack.config.env,
        )
        for step, variables in steps:
            self._log(f"[{step.line}] {step.text}")
            stack = await self._apply(stack, step, variables)
        self._stages[number] = stack
        return stack

    async def _base(self, name: str, before: int) -> Stack:
        """An earlier stage, a template, an image, or nothing (``scratch``)."""
        for number, stage in enumerate(self._parsed.stages[:before]):
            if stage.name and stage.name == name.lower():
                return await self.stage(number)
        if name == "scratch":
            return self._layers.empty()
        self._log(f"FROM {name}")
        return await self._layers.base(name)

    async def _apply(self, stack: Stack, step: df.Step, variables: Mapping[str, str]) -> Stack:
        config = stack.config
        match step:
            case df.Run():
                return await self._run(stack, step, variables)
            case df.Copy():
                return await self._copy(stack, step)
            case df.Shell():
                return replace(stack, shell=step.command)
            case df.Workdir():
                path = posixpath.normpath(posixpath.join("/", config.workdir, step.path))
                return await self._workdir(
                    replace(stack, config=replace(config, workdir=path)), path
                )
            case _:
                return replace(stack, config=_configure(stack, step))

    async def _layer(
        self, stack: Stack, key: str, work: Callable[[Inside], Awaitable[None]]
    ) -> Stack:
        return await self._layers.add(stack, key, work, force=self._recipe.force)

    async def _workdir(self, stack: Stack, path: str) -> Stack:
        async def work(workshop: Inside) -> None:
            await workshop.make_directory(path, user="root")

        return await self._layer(stack, stack.then("WORKDIR", path), work)

    async def _run(self, stack: Stack, step: df.Run, variables: Mapping[str, str]) -> Stack:
        argv = [*stack.shell, step.script()] if step.is_shell else list(step.command)
        config = stack.config
        key = stack.then(
            "RUN", *argv, config.user, config.workdir, json.dumps(sorted(variables.items()))
        )

        async def work(workshop: Inside) -> None:
            status = await workshop.run(
                argv,
                env=variables,
                cwd=config.workdir or "/",
                user=config.user or "root",
                on_output=lambda data: self._log(data.decode(errors="replace")),
            )
            if status:
                raise TemplateError(
                    f"Dockerfile line {step.line}: exit status {status}: {step.text}"
                )

        return await self._layer(stack, key, work)

    async def _copy(self, stack: Stack, step: df.Copy) -> Stack:
        target = posixpath.join("/", stack.config.workdir, step.target)
        if step.target.endswith("/") and not target.endswith("/"):
            target += "/"
        source = await self._source(step)
        key = stack.then("COPY", source.key, target, step.chown, step.chmod, str(step.unpack))

        async def work(workshop: Inside) -> None:
            await copy_in(workshop, step, source, target)

        return await self._layer(stack, key, work)

    async def _source(self, step: df.Copy) -> Source:
        if step.from_:
            return await self._stage_source(step)
        items = [Item(doc.name, doc.content.encode(), None) for doc in step.heredocs]
        directory = self._recipe.context
        if step.sources and directory is None:
            raise TemplateError(f"Dockerfile line {step.line}: COPY needs a context directory")
        keys = [hashlib.sha256(item.data or b"").hexdigest() for item in items]
        for pattern in step.sources:
            assert directory is not None
            chosen = await asyncio.to_thread(self._select, directory, pattern)
            keys.append(await asyncio.to_thread(files.hash_files, directory, chosen))
            items += items_of(directory, pattern, chosen)
        return Source(json.dumps([list(step.sources), *keys]), tuple(items))

    def _select(self, directory: Path, pattern: str) -> list[str]:
        if self._listed is None:
            self._listed = files.list_context(directory)
        return files.select_files(directory, self._listed, pattern)

    async def _stage_source(self, step: df.Copy) -> Source:
        known = self._parsed.stage(step.from_)
        if known is not None:
            other = await self.stage(self._parsed.stages.index(known))
        else:
            other = await self._base(step.from_, 0)
        return Source(json.dumps([other.key, list(step.sources)]), (), self._context, other.layers)

    async def store(self, stack: Stack) -> Rootfs:
        """Copy the stack into one tree in the image store, under the template's name."""
        found = await self._layers.store(stack, self._recipe.name)
        await self._context.parts.templates.register(self._recipe.name, found)
        return found


def _configure(stack: Stack, step: df.Step) -> ImageConfig:
    """The configuration after a step that changes nothing else."""
    config = stack.config
    match step:
        case df.Env():
            config = replace(config, env={**config.env, **dict(step.pairs)})
        case df.Label():
            config = replace(config, labels={**config.labels, **dict(step.pairs)})
        case df.User():
            config = replace(config, user=step.user)
        case df.Expose():
            ports = {*config.exposed_ports, *df.parse_ports(step)}
            config = replace(config, exposed_ports=tuple(sorted(ports)))
        case df.Entrypoint():
            command = _form(stack, step.command, is_shell=step.is_shell)
            config = replace(config, entrypoint=command, cmd=())
        case df.Cmd():
            config = replace(config, cmd=_form(stack, step.command, is_shell=step.is_shell))
        case _:
            pass
    return config


def _form(stack: Stack, command: tuple[str, ...], *, is_shell: bool) -> tuple[str, ...]:
    return (*stack.shell, command[0]) if is_shell else command
