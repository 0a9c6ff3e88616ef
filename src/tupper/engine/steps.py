"""Building a template from steps, as E2B's clients send them.

Like a Dockerfile (:mod:`tupper.engine.build`), with other defaults: commands run in a login shell,
as the user ``user``, in its home. What the steps say about user, directory and environment is what
the template's sandboxes begin with.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tupper.core.backend import ImageConfig
from tupper.core.errors import TemplateError
from tupper.engine.archives import Copying, copy_archive
from tupper.engine.context import Context
from tupper.engine.inside import Inside
from tupper.engine.launch import launch, login_shell
from tupper.engine.stack import CheckUse, Layers, Stack
from tupper.engine.workshop import open_workshop
from tupper.protocol.building import BuildPlan, BuildStep, Kind
from tupper.protocol.dockerfile import expand

USER = "user"
# Gets a line and the step that it belongs to.
Tell = Callable[[str, str], None]
# The archive that was uploaded under a hash, and what names its content.
FindFiles = Callable[[str], tuple[Path, str]]

_BASES = re.compile(r"(docker\.io/)?e2bdev/(base|code-interpreter)(:[\w.-]+)?")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# By the programs there are; else by hand, as on images with little more than a shell.
_ADD_USER = """\
id -u "$1" >/dev/null 2>&1 && exit 0
shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash
if command -v useradd >/dev/null 2>&1; then exec useradd -m -s "$shell" "$1"; fi
adduser -D -s "$shell" "$1" >/dev/null 2>&1 && exit 0
taken() {
  while IFS=: read -r name secret id rest; do [ "$id" = "$uid" ] && return 0; done </etc/passwd
  return 1
}
uid=1000
while taken; do uid=$((uid + 1)); done
echo "$1:x:$uid:$uid::/home/$1:$shell" >>/etc/passwd && echo "$1:x:$uid:" >>/etc/group &&
mkdir -p "/home/$1" && chown "$uid:$uid" "/home/$1"
"""
_PREPARE = """\
mkdir -p /code /usr/local && chmod 777 /code
find /usr/local -type d -exec chmod 777 {} +
"""


class StepBuilder:
    """Builds one template; used once.

    Args:
        context: of the engine.
        plan: what to build.
        tell: gets the log.
        find_files: finds what was uploaded.
        host_images: whether an image in a file of the host may be named.
        check_use: raises for a template that it may not start from.
    """

    def __init__(
        self,
        context: Context,
        plan: BuildPlan,
        tell: Tell,
        find_files: FindFiles,
        *,
        host_images: bool,
        check_use: CheckUse,
    ) -> None:
        self._context = context
        self._plan = plan
        self._tell = tell
        self._find_files = find_files
        self.layers = Layers(context, self._log, host_images=host_images, check_use=check_use)
        self._force = plan.force
        self.step = "base"

    def _log(self, text: str) -> None:
        for line in text.splitlines():
            self._tell(line, self.step)

    def _hear(self, data: bytes) -> None:
        self._log(data.decode(errors="replace"))

    async def build(self, *, cpus: float, memory_mib: int) -> Stack:
        """Make the layers, and see that what it starts gets ready.

        Args:
            cpus, memory_mib: of the template's sandboxes; 0 for the default.

        Raises:
            TupperError: :attr:`step` says where.
        """
        stack = await self._base()
        for number, step in enumerate(self._plan.steps, 1):
            self.step = str(number)
            self._force = self._force or step.force
            self._log(f"[{number}/{len(self._plan.steps)}] {step}")
            stack = await self._apply(stack, step)
        self.step = "finalize"
        return await self._finalize(stack, cpus=cpus, memory_mib=memory_mib)

    async def _finalize(self, stack: Stack, *, cpus: float, memory_mib: int) -> Stack:
        plan, config = self._plan, stack.config
        if plan.start or plan.ready:
            config = replace(config, start=plan.start, ready=plan.ready)
        config = replace(
            config,
            cpus=cpus or config.cpus,
            memory_mib=memory_mib or config.memory_mib,
        )
        if plan.start or plan.ready:
            self._log(f"starting: {plan.start}" if plan.start else f"waiting for: {plan.ready}")
            async with open_workshop(self._context, stack.layers, config, None) as workshop:
                await launch(workshop, config, log=self._hear)
            self._log("ready")
        return replace(stack, config=config)

    # What it starts from.

    async def _base(self) -> Stack:
        plan = self._plan
        if plan.from_template:
            self._log(f"FROM template {plan.from_template}")
            stack = await self.layers.template(plan.from_template)
            return replace(stack, config=_as_user(stack.config))
        self._log(f"FROM {plan.from_image}")
        ours = _BASES.fullmatch(plan.from_image)
        if ours or plan.from_image in ("base", "base:latest"):
            stack = await self.layers.template(ours[2] if ours else "base")
            return replace(stack, config=_as_user(stack.config))
        return await self._prepared(await self.layers.image(plan.from_image))

    async def _prepared(self, stack: Stack) -> Stack:
        """An image with the user ``user``, whom E2B's clients expect.

        One that has no shell to make it keeps the user it has.
        """

        async def work(inside: Inside) -> None:
            await self._prepare(inside)

        key = stack.then("PREPARE", _ADD_USER, _PREPARE)
        try:
            prepared = await self.layers.add(stack, key, work, force=self._force)
        except _CannotPrepareError:
            self._log(f"the image has no shell, and so no user {USER!r}")
            return stack
        return replace(prepared, config=replace(prepared.config, user=USER, workdir=""))

    async def _prepare(self, inside: Inside) -> None:
        for script in (_ADD_USER, _PREPARE):
            argv = ["/bin/sh", "-c", script, "sh", USER]
            try:
                status = await inside.run(argv, env={}, cwd="/", user="root", on_output=self._hear)
            except TemplateError as error:
                raise _CannotPrepareError(error.message) from error
            if status:
                raise _CannotPrepareError(f"status {status}")

    # Steps.

    async def _apply(self, stack: Stack, step: BuildStep) -> Stack:
        match step.kind:
            case Kind.RUN:
                return await self._run(stack, step)
            case Kind.COPY:
                return await self._copy(stack, step)
            case Kind.ENV:
                return await self._env(stack, step)
            case Kind.WORKDIR:
                return await self._workdir(stack, step.args[0])
            case Kind.USER:
                return await self._user(stack, step.args[0])

    async def _add(
        self, stack: Stack, parts: list[str], work: Callable[[Inside], Awaitable[None]]
    ) -> Stack:
        return await self.layers.add(stack, stack.then(*parts), work, force=self._force)

    async def _run(self, stack: Stack, step: BuildStep) -> Stack:
        config, command = stack.config, step.args[0]
        user = (step.args[1] if len(step.args) > 1 else "") or config.user
        env = json.dumps(sorted(config.env.items()))

        async def work(inside: Inside) -> None:
            status = await inside.run(
                login_shell(command),
                env={},  # the sandbox has the template's already
                cwd=config.workdir or None,
                user=user,
                on_output=self._hear,
            )
            if status:
                raise TemplateError(f"exit status {status}: {step}")

        return await self._add(stack, ["E2B RUN", command, user, config.workdir, env], work)

    async def _copy(self, stack: Stack, step: BuildStep) -> Stack:
        source, target, owner, mode = (*step.args, "", "")[:4]
        config = stack.config
        owner = owner or config.user
        archive, content = self._find_files(step.files_hash)
        parts = ["E2B COPY", content, source, target, owner, mode, config.user, config.workdir]

        async def work(inside: Inside) -> None:
            place = config.workdir
            if not place and not target.startswith("/"):
                place = await inside.home(config.user)
            whole = posixpath.join(place or "/", target)
            await copy_archive(inside, archive, Copying(source, whole, owner, mode))

        return await self._add(stack, parts, work)

    async def _env(self, stack: Stack, step: BuildStep) -> Stack:
        names, values = step.args[::2], step.args[1::2]
        known: dict[str, str] = {"PATH": _PATH, **stack.config.env}
        if not {name for value in values for name in _VARIABLE.findall(value)} <= set(known):
            known = await self._environment(stack)
        env = dict(stack.config.env)
        for name, value in zip(names, values, strict=True):
            env[name] = known[name] = expand(value, known.get)
        return replace(stack, key=stack.then("E2B ENV"), config=replace(stack.config, env=env))

    async def _environment(self, stack: Stack) -> dict[str, str]:
        """What a command of the template's user finds in its environment."""
        said: list[bytes] = []
        async with open_workshop(self._context, stack.layers, stack.config, None) as inside:
            await inside.run(
                login_shell("env -0"), env={}, cwd=None, user=stack.config.user,
                on_output=said.append,
            )  # fmt: skip
        pairs = b"".join(said).decode(errors="replace").split("\0")
        return {name: value for name, found, value in (p.partition("=") for p in pairs) if found}

    async def _workdir(self, stack: Stack, path: str) -> Stack:
        config = stack.config
        whole = posixpath.normpath(posixpath.join("/", config.workdir, path))

        async def work(inside: Inside) -> None:
            await inside.make_directory(whole, user=config.user)

        moved = replace(stack, config=replace(config, workdir=whole))
        return await self._add(moved, ["E2B WORKDIR", whole, config.user], work)

    async def _user(self, stack: Stack, name: str) -> Stack:
        async def work(inside: Inside) -> None:
            argv = ["/bin/sh", "-c", _ADD_USER, "sh", name]
            if await inside.run(argv, env={}, cwd="/", user="root", on_output=self._hear):
                raise TemplateError(f"cannot make the user {name!r}")

        made = await self._add(stack, ["E2B USER", name, _ADD_USER], work)
        return replace(made, config=replace(made.config, user=name))


class _CannotPrepareError(TemplateError):
    """An image without a shell."""


def _as_user(config: ImageConfig) -> ImageConfig:
    return config if config.user else replace(config, user=USER)
