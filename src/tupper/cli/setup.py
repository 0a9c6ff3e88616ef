"""``tupper setup``: bring this host to where ``tupper run`` works. Safe to repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import click

from tupper.cli import _control, _host, _output, _programs

_PARTS = ("packages", "backends", "templates")
_TEMPLATE = "base"
Say = Callable[[str], None]


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice(_PARTS), help="Do only this part; repeatable."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something fails.")
def setup(*, only: tuple[str, ...], quiet: bool) -> None:
    """Install or fetch what this host needs, and say what was done.

    Packages of the system (as root or with sudo, Debian and Ubuntu only), programs of backends
    (privately, into tupper's data directory), the template base. What is there already is left
    alone.
    """
    prepare(_ignore if quiet else _output.result, parts=only or _PARTS, quiet=quiet)


def prepare(say: Say, *, parts: Collection[str] = _PARTS, quiet: bool = True) -> None:
    """Do it.

    Args:
        say: is given a line for each thing that was found or done.
        parts: what to do.
        quiet: no progress bar.

    Errors:
        ProgramNotFound, ProgramFailed: packages are missing and cannot be installed.
        BackendUnavailable: no backend works here, with the reason of each.
        TemplateError: the template cannot be built.
    """
    if "packages" in parts:
        asyncio.run(_prepare_packages(say))
    if "backends" in parts:
        asyncio.run(_host.set_up_backends(say))
    if "templates" in parts:
        with _output.progress(quiet=quiet) as bar:
            _control.build_template({"name": _TEMPLATE}, bar, log=None)
        say(f"templates: {_TEMPLATE} is ready")


async def _prepare_packages(say: Say) -> None:
    missing = _programs.find_missing(ordinary=not _programs.is_root())
    if missing:
        await _programs.install(missing, say)
    say("packages: all programs are there")


def _ignore(_: str) -> None:
    """For those who do not want to hear it."""
