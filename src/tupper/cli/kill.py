"""``tupper kill``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import SANDBOX
from tupper.cli._sandboxes import all_running, kill_one


@click.command()
@click.argument("sandboxes", type=SANDBOX, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All, paused ones too.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def kill(*, sandboxes: tuple[str, ...], everything: bool, quiet: bool) -> int:
    """End SANDBOXES and print the ids of those that ran.

    Exits with 1 if one of them was not running; the others are ended all the same.
    """
    if everything == bool(sandboxes):
        raise click.UsageError("name the sandboxes, or give --all")
    names = [info.sandbox_id for info in all_running()] if everything else list(sandboxes)
    missed = 0
    for name in names:
        if kill_one(name):
            if not quiet:
                _output.result(name)
        elif not everything:
            missed += 1
            _output.error(f"no sandbox {name!r} is running", hint="tupper list shows them")
    return 1 if missed else 0


def end_everything() -> None:
    """End all sandboxes and the background process."""
    from tupper.cli._control import shut_down  # noqa: PLC0415 - tests only

    for info in all_running():
        kill_one(info.sandbox_id)
    shut_down()
