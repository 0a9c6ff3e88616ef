"""A Dockerfile as the steps of a template.

Docker's defaults differ from a template's: it begins as root in ``/``, and a sandbox shall begin as
``user`` in its home unless the file says otherwise. ENTRYPOINT and CMD become the start command.
"""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tupper.core.errors import TemplateError
from tupper.protocol import dockerfile as df
from tupper.sdk._shared.errors import TemplateException
from tupper.sdk._shared.ready import wait_for_timeout

if TYPE_CHECKING:
    from tupper.sdk._shared.builder import TemplateBuilder

_STARTS_MS = 20_000


def write_steps(text_or_path: str, builder: TemplateBuilder) -> str:
    """Add a Dockerfile's steps to a builder; returns the image that it starts from.

    Errors:
        TemplateException: naming the line.
    """
    try:
        parsed = df.parse_dockerfile(_read(text_or_path))
        outer = df.global_args(parsed, {})
        if len(parsed.stages) != 1:
            raise TemplateException("Multi-stage Dockerfiles are not supported")
        stage = next(iter(parsed.stages))
        steps = list(df.expand_stage(stage, build_args={}, outer=outer, env={}))
        _Writer(builder).write([step for step, _ in steps])
        return df.expand(stage.base, outer.get)
    except TemplateError as error:
        raise TemplateException(error.message) from error


def _read(text_or_path: str) -> str:
    try:
        if "\n" not in text_or_path and Path(text_or_path).is_file():
            return Path(text_or_path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass  # no path, then
    return text_or_path


class _Writer:
    def __init__(self, builder: TemplateBuilder) -> None:
        self._builder = builder
        self._entrypoint: df.Entrypoint | None = None
        self._cmd: df.Cmd | None = None

    def write(self, steps: list[df.Step]) -> None:
        builder = self._builder
        builder.set_user("root")
        builder.set_workdir("/")
        for step in steps:
            self._step(step)
        kinds = {type(step) for step in steps}
        if df.User not in kinds:
            builder.set_user("user")
        if df.Workdir not in kinds:
            builder.set_workdir("/home/user")
        if command := self._command():
            builder.set_start_cmd(command, wait_for_timeout(_STARTS_MS))

    def _step(self, step: df.Step) -> None:
        builder = self._builder
        match step:
            case df.Run():
                builder.run_cmd(step.script() if step.is_shell else shlex.join(step.command))
            case df.Copy():
                self._copy(step)
            case df.Env():
                builder.set_envs(dict(step.pairs))
            case df.Arg():
                builder.set_envs({step.name: step.default or ""})
            case df.Workdir():
                builder.set_workdir(step.path)
            case df.User():
                builder.set_user(step.user)
            case df.Entrypoint():
                self._entrypoint = step
            case df.Cmd():
                self._cmd = step
            case _:
                pass

    def _copy(self, step: df.Copy) -> None:
        if step.from_:
            raise TemplateException(
                f"line {step.line}: COPY --from is not supported here",
                hint="`tupper template build -f Dockerfile` can do it",
            )
        mode = int(step.chmod, 8) if step.chmod else None
        for source in step.sources:
            self._builder.copy(source, step.target, user=step.chown or None, mode=mode)
        for document in step.heredocs:
            target = step.target
            if target.endswith("/"):
                target = posixpath.join(target, document.name)
            place = shlex.quote(target)
            script = f"mkdir -p {shlex.quote(posixpath.dirname(target) or '.')}"
            script += f" && printf %s {shlex.quote(document.content)} > {place}"
            if step.chown:
                script += f" && chown {shlex.quote(step.chown)} {place}"
            if mode is not None:
                script += f" && chmod {mode:o} {place}"
            self._builder.run_cmd(script, user="root")

    def _command(self) -> str:
        """ENTRYPOINT with CMD, by Docker's rules."""
        entrypoint, cmd = self._entrypoint, self._cmd
        if entrypoint is None:
            return _text(cmd)
        if entrypoint.is_shell:
            return entrypoint.command[0]
        words = list(entrypoint.command)
        if cmd is not None:
            words += ["/bin/sh", "-c", cmd.command[0]] if cmd.is_shell else cmd.command
        return shlex.join(words)


def _text(cmd: df.Cmd | None) -> str:
    if cmd is None or not cmd.command:
        return ""
    return cmd.command[0] if cmd.is_shell else shlex.join(cmd.command)
