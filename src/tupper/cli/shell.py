"""``tupper shell``: a real terminal in a sandbox."""

from __future__ import annotations

import click

from tupper.cli._options import SANDBOX, Pair
from tupper.cli._process import run_inside


@click.command()
@click.option("-u", "--user", help="Whose shell.")
@click.option("-w", "--workdir", metavar="DIR", help="Where it starts.")
@click.option(
    "-e", "--env", "envs", type=Pair(), multiple=True, metavar="KEY=VALUE", help="Repeatable."
)
@click.argument("sandbox", type=SANDBOX)
def shell(
    *, sandbox: str, user: str | None, workdir: str | None, envs: tuple[tuple[str, str], ...]
) -> int:
    """Open a terminal in SANDBOX.

    Keys go inside as they are, Ctrl-C too; the size of the window follows. Exits with the code of
    the shell.
    """
    return run_inside(
        sandbox, (), interactive=True, tty=True, user=user, cwd=workdir, envs=dict(envs)
    )
