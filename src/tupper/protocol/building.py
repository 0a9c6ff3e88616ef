"""What E2B's clients send to build a template, and what they want to hear of it. No I/O.

Source: the published ``e2b`` packages for Python 2.45 to 2.63 and for JavaScript 2.45 to 2.51.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tupper.core.errors import InvalidArgument
from tupper.protocol.fields import Fields
from tupper.protocol.unsupported import NotYet

STATUS_PAGE = 100
_MOST_STEPS = 1000
_MODE = re.compile(r"[0-7]{3,4}")
_HASH = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[^=\0]+")


class Kind(StrEnum):
    """Kinds of steps."""

    RUN = "RUN"
    COPY = "COPY"
    ENV = "ENV"
    WORKDIR = "WORKDIR"
    USER = "USER"


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One step.

    Args:
        kind: of step.
        args: as many as its kind takes.
        files_hash: names what was uploaded for COPY; empty otherwise.
        force: run it and all after it again.
    """

    kind: Kind
    args: tuple[str, ...]
    files_hash: str = ""
    force: bool = False

    def __str__(self) -> str:
        """As a line of a log."""
        return f"{self.kind} {' '.join(arg for arg in self.args if arg)}"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What to build. Exactly one of ``from_image`` and ``from_template`` is not empty.

    Args:
        from_image, from_template: what it starts from.
        steps: in their order.
        force: run every step again.
        start, ready: commands of the sandboxes; empty for none.
    """

    from_image: str
    from_template: str
    steps: tuple[BuildStep, ...]
    force: bool = False
    start: str = ""
    ready: str = ""


class BuildStatus(StrEnum):
    """States of a build."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a build's log.

    Args:
        at: unix seconds.
        message: without its end of line.
        level: debug, info, warn or error.
        step: number of the step, ``base`` or ``finalize``; empty for none.
    """

    at: float
    message: str
    level: str = "info"
    step: str = ""


def check_hash(text: str) -> str:
    """The hash that names an upload, if it is one.

    Raises:
        InvalidArgument: it is none.
    """
    if not _HASH.fullmatch(text):
        raise InvalidArgument("the hash of the files must be 64 hexadecimal digits")
    return text


def parse_plan(body: Fields) -> BuildPlan:
    """The body of ``POST /v2/templates/{id}/builds/{build}``.

    Raises:
        InvalidArgument: naming what is wrong.
        NotYet: it asks for a kind of registry that is not supported.
    """
    image, template = body.text("fromImage"), body.text("fromTemplate")
    if bool(image) == bool(template):
        raise InvalidArgument("give exactly one of fromImage and fromTemplate")
    _refuse_login(body.child("fromImageRegistry"))
    steps = body.objects("steps")
    if len(steps) > _MOST_STEPS:
        raise InvalidArgument(f"{len(steps)} steps, the most is {_MOST_STEPS}")
    return BuildPlan(
        from_image=image,
        from_template=template,
        steps=tuple(_step(step, number) for number, step in enumerate(steps, 1)),
        force=body.flag("force") is True,
        start=body.text("startCmd"),
        ready=body.text("readyCmd"),
    )


def _refuse_login(registry: Fields | None) -> None:
    if registry is not None and registry.values:
        raise NotYet(
            "this tupper does not support credentials for a registry in a build",
            hint="pull the image on the machine itself first, then name it",
        )


def _step(step: Fields, number: int) -> BuildStep:
    name, args = step.text("type"), step.texts("args")
    if name not in list(Kind):
        raise InvalidArgument(f"step {number}: there is no {name!r}", hint=", ".join(Kind))
    if any("\0" in arg for arg in args):
        raise InvalidArgument(f"step {number}: an argument contains a NUL character")
    kind = Kind(name)
    files_hash = step.text("filesHash")
    _check_args(kind, args, number)
    if kind is Kind.COPY:
        check_hash(files_hash)
    return BuildStep(kind, args, files_hash, step.flag("force") is True)


def _check_args(kind: Kind, args: Sequence[str], number: int) -> None:
    least, most = {
        Kind.RUN: (1, 2), Kind.COPY: (2, 4), Kind.ENV: (2, 2000), Kind.WORKDIR: (1, 1),
        Kind.USER: (1, 2),
    }[kind]  # fmt: skip
    if not least <= len(args) <= most or not args[0] or (kind is Kind.ENV and len(args) % 2):
        raise InvalidArgument(f"step {number}: {kind} cannot have these {len(args)} arguments")
    if kind is Kind.COPY and len(args) == 4 and args[3] and not _MODE.fullmatch(args[3]):
        raise InvalidArgument(f"step {number}: {args[3]!r} is not a mode in octal")
    if kind is Kind.USER and not _USER.fullmatch(args[0]):
        raise InvalidArgument(f"step {number}: {args[0][:80]!r} cannot be a user's name")
    if kind is Kind.ENV and not all(_VARIABLE.fullmatch(name) for name in args[::2]):
        raise InvalidArgument(f"step {number}: an environment variable cannot have this name")


def render_log(line: LogLine, at: str) -> dict[str, object]:
    """A log entry; ``at`` is its time as E2B's clients read it."""
    entry: dict[str, object] = {"timestamp": at, "message": line.message, "level": line.level}
    if line.step:
        entry["step"] = line.step
    return entry


def line_from_json(value: Mapping[str, object]) -> LogLine:
    """A line as :func:`json_from_line` wrote it."""
    fields = Fields(value)
    return LogLine(
        fields.number("at") or 0.0, fields.text("message"), fields.text("level"),
        fields.text("step"),
    )  # fmt: skip


def json_from_line(line: LogLine) -> dict[str, object]:
    """A line for a file."""
    return {"at": line.at, "message": line.message, "level": line.level, "step": line.step}
