"""``tupper run``: a sandbox for one command."""

from __future__ import annotations

import math

import click

from tupper.cli._options import Span, creation_arguments, creation_options
from tupper.cli._process import run_inside
from tupper.cli._sandboxes import create_with_progress

_SPARE_S = 300.0


@click.command(context_settings={"allow_interspersed_args": False})
@creation_options
@click.option("-i", "--interactive", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@click.option("--timeout", type=Span(), metavar="TIME", help="End the command after so long.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    *,
    interactive: bool,
    tty: bool,
    timeout: float | None,
    command: tuple[str, ...],
    **options: object,
) -> int:
    """Run COMMAND in a new sandbox, stream its output, and leave nothing behind.

    Several arguments are the command and its arguments, unchanged; a single one is a line for
    the shell. Exits with the command's code, 124 if --timeout was over, 125 if tupper failed.
    """
    arguments = creation_arguments(options)
    # It ends with this process; the time limit is for the case that nobody can tell any more.
    life = math.inf if timeout is None else timeout + _SPARE_S
    sandbox = create_with_progress(arguments, timeout_s=life, bound=True)
    try:
        return run_inside(
            sandbox.sandbox_id, command, interactive=interactive, tty=tty, timeout_s=timeout
        )
    finally:
        sandbox.kill()
