"""``tupper pause`` and ``tupper resume``."""

from __future__ import annotations

import math

import click

from tupper import Sandbox
from tupper.cli import _control, _output
from tupper.cli._options import SANDBOX, Span


@click.command()
@click.argument("sandboxes", type=SANDBOX, nargs=-1, required=True)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def pause(*, sandboxes: tuple[str, ...], quiet: bool) -> None:
    """Lay SANDBOXES on disk, processes and memory included, and print their names.

    They then take no processor and no memory, and their time stands still. One that is paused
    already is no error.
    """
    for name in sandboxes:
        with _output.waiting(f"pausing {name}", quiet=quiet):
            Sandbox.pause(name)
        if not quiet:
            _output.result(name)


@click.command()
@click.argument("sandboxes", type=SANDBOX, nargs=-1, required=True)
@click.option(
    "--timeout", type=Span(), metavar="TIME", help="How long they live from now [as at create]."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def resume(*, sandboxes: tuple[str, ...], timeout: float | None, quiet: bool) -> None:
    """Let paused SANDBOXES go on where they were, and print their names.

    One that runs already is no error; with --timeout it lives at least that long.
    """
    for name in sandboxes:
        with _output.waiting(f"resuming {name}", quiet=quiet):
            _control.resume(name, None if timeout is None else math.ceil(timeout))
        if not quiet:
            _output.result(name)
