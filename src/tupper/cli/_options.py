"""Options that several verbs share, and how their values are read.

A value that cannot be read is a usage error that names the option and shows the form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import click

from tupper import Mount

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., object])

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


class Span(click.ParamType[float]):
    """A length of time: ``90``, ``90s``, ``5m``, ``2h``, ``1d``; ``never`` where that is allowed.

    Units:
        seconds; ``math.inf`` for never.
    """

    name = "time"

    def __init__(self, *, may_be_never: bool = False) -> None:
        self.may_be_never = may_be_never

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the text."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        if self.may_be_never and text in {"never", "none"}:
            return math.inf
        match = _SPAN.fullmatch(text)
        if match is None:
            forms = "90, 90s, 5m, 2h or 1d" + (", or never" if self.may_be_never else "")
            self.fail(f"{value!r} is not a length of time; write {forms}", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


class SandboxName(click.ParamType[str]):
    """An id, the unique beginning of one, or a name. A shell completes those that are there."""

    name = "sandbox"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names and ids that begin like this."""
        del ctx, param
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - rarely needed

        from tupper.cli._sandboxes import words_for_completion  # noqa: PLC0415 - likewise

        known = words_for_completion().items()
        return [CompletionItem(word, help=of) for word, of in known if word.startswith(incomplete)]


SANDBOX = SandboxName()


class Pair(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE``."""

    name = "key=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Read the text."""
        if isinstance(value, tuple):
            name, content = cast("tuple[object, object]", value)
            return str(name), str(content)
        key, equals, rest = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form KEY=VALUE", param, ctx)
        return key, rest


def read_mount(value: str) -> Mount:
    """``HOST:GUEST[:ro]`` as the SDK wants it."""
    host, colon, guest = value.partition(":")
    guest, _, mode = guest.partition(":")
    if not (host and colon and guest.startswith("/")) or mode not in {"", "ro", "rw"}:
        raise click.BadParameter(
            f"{value!r} is not of the form HOST:GUEST or HOST:GUEST:ro, GUEST absolute",
            param_hint="--mount",
        )
    return Mount(host, guest, read_only=mode == "ro")


def read_volume(value: str) -> tuple[str, str]:
    """``NAME:GUEST`` as (path inside, name)."""
    name, colon, guest = value.partition(":")
    if not (name and colon and guest.startswith("/")):
        raise click.BadParameter(
            f"{value!r} is not of the form NAME:GUEST, GUEST absolute", param_hint="--volume"
        )
    return guest, name


def read_port(value: str) -> tuple[int, int]:
    """``[HOST:]GUEST`` as (guest, host); host 0 means any free one."""
    host, _, guest = value.rpartition(":")
    if not guest.isdecimal() or (host and not host.isdecimal()):
        raise click.BadParameter(
            f"{value!r} is not of the form GUEST or HOST:GUEST", param_hint="--port"
        )
    return int(guest), int(host or 0)


def _apply(decorators: list[Callable[[F], F]], function: F) -> F:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def labels_option(meaning: str) -> Callable[[F], F]:
    """``-l`` and ``--label``: of a new sandbox, or of those that are wanted."""
    return click.option(
        "-l",
        "--label",
        "labels",
        type=Pair(),
        multiple=True,
        metavar="KEY=VALUE",
        help=meaning,
    )


def creation_options(function: F) -> F:
    """Everything that a new sandbox can be given."""
    return _apply(
        [
            click.option("--template", metavar="NAME", help="Template to start from [base]."),
            click.option("--image", metavar="REF", help="OCI image instead of a template."),
            click.option("--name", help="A name, unique among running sandboxes."),
            click.option("--profile", metavar="NAME", help="Settings from the configuration."),
            click.option("--backend", metavar="NAME", help="Which backend [the strongest]."),
            click.option(
                "--fallback",
                "fallback",
                type=click.Choice(["e2b"]),
                multiple=True,
                help="Where to, if no backend can be used here: e2b is E2B's cloud.",
            ),
            click.option(
                "--min-isolation",
                type=click.Choice(["hardware-vm", "emulated-vm", "user-kernel"]),
                help="Refuse anything weaker.",
            ),
            click.option("--cpus", type=float, metavar="N", help="Cores, may be fractional."),
            click.option("--memory", metavar="SIZE", help="Such as 512m or 2g."),
            click.option("--disk", metavar="SIZE", help="Such as 10g."),
            click.option("--pids", type=int, metavar="N", help="Most processes inside."),
            click.option(
                "--mount",
                "mounts",
                multiple=True,
                metavar="HOST:GUEST[:ro]",
                help="A directory of this host; repeatable.",
            ),
            click.option(
                "--volume",
                "volumes",
                multiple=True,
                metavar="NAME:GUEST",
                help="A volume, see tupper volume; repeatable.",
            ),
            click.option(
                "-p",
                "--port",
                "ports",
                multiple=True,
                metavar="[HOST:]GUEST",
                help="Publish a port on 127.0.0.1; repeatable.",
            ),
            click.option(
                "-e",
                "--env",
                "envs",
                type=Pair(),
                multiple=True,
                metavar="KEY=VALUE",
                help="Environment inside; repeatable.",
            ),
            labels_option("Metadata to find it again; repeatable."),
            click.option("-u", "--user", help="Default user inside."),
            click.option("-w", "--workdir", metavar="DIR", help="Default directory inside."),
            click.option("--internet/--no-internet", default=None, help="Access to the internet."),
            click.option(
                "-O",
                "--backend-option",
                "backend_options",
                type=Pair(),
                multiple=True,
                metavar="KEY=VALUE",
                help="For the backend itself; repeatable.",
            ),
        ],
        function,
    )


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def listing_options(function: F) -> F:
    """``--json`` and ``-q``, which every listing has."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="Print only ids or names.")
    return quiet(json_option(function))


def creation_arguments(options: dict[str, object]) -> dict[str, object]:
    """The options of :func:`creation_options` as arguments of ``Sandbox.create``.

    What was not given is left out, so that profiles and defaults of the SDK apply.
    """
    arguments: dict[str, object] = {}
    for name in (
        "template",
        "image",
        "name",
        "profile",
        "backend",
        "min_isolation",
        "cpus",
        "memory",
        "disk",
        "pids",
        "user",
        "workdir",
    ):
        if options.get(name) is not None:
            arguments[name] = options[name]
    if options.get("internet") is not None:
        arguments["allow_internet_access"] = options["internet"]
    for name, target in (
        ("envs", "envs"),
        ("labels", "metadata"),
        ("backend_options", "backend_options"),
    ):
        if pairs := options.get(name):
            arguments[target] = dict(pairs)  # type: ignore[call-overload]
    if fallback := cast("tuple[str, ...] | None", options.get("fallback")):
        arguments["fallback"] = list(fallback)
    mounts, ports = options.get("mounts"), options.get("ports")
    if isinstance(mounts, tuple) and mounts:
        arguments["mounts"] = [
            read_mount(str(value)) for value in cast("tuple[object, ...]", mounts)
        ]
    volumes = options.get("volumes")
    if isinstance(volumes, tuple) and volumes:
        arguments["volume_mounts"] = dict(
            read_volume(str(value)) for value in cast("tuple[object, ...]", volumes)
        )
    if isinstance(ports, tuple) and ports:
        arguments["ports"] = dict(
            read_port(str(value)) for value in cast("tuple[object, ...]", ports)
        )
    return arguments
