"""``tupper exec``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import SANDBOX, Pair, Span
from tupper.cli._process import run_inside, start_inside


@click.command(name="exec", context_settings={"allow_interspersed_args": False})
@click.option("-i", "--interactive", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@click.option("-d", "--detach", is_flag=True, help="Print the pid and leave it running.")
@click.option("-u", "--user", help="Who runs it.")
@click.option("-w", "--workdir", metavar="DIR", help="Where it runs.")
@click.option(
    "-e", "--env", "envs", type=Pair(), multiple=True, metavar="KEY=VALUE", help="Repeatable."
)
@click.option("--timeout", type=Span(), metavar="TIME", help="End the command after so long.")
@click.argument("sandbox", type=SANDBOX)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(
    *,
    sandbox: str,
    command: tuple[str, ...],
    interactive: bool,
    tty: bool,
    detach: bool,
    user: str | None,
    workdir: str | None,
    envs: tuple[tuple[str, str], ...],
    timeout: float | None,
) -> int:
    """Run COMMAND in SANDBOX and stream its output.

    Standard input is passed on only with -i. Several arguments are the command and its arguments,
    unchanged; a single one is a line for the shell. Exits with the command's code, 124 if
    --timeout was over, 125 if tupper failed.
    """
    if detach:
        pid = start_inside(sandbox, command, user=user, cwd=workdir, envs=dict(envs))
        _output.result(str(pid))
        return 0
    return run_inside(
        sandbox,
        command,
        interactive=interactive,
        tty=tty,
        timeout_s=timeout,
        user=user,
        cwd=workdir,
        envs=dict(envs),
    )
