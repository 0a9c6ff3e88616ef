"""``tupper timeout``."""

from __future__ import annotations

import math

import click

from tupper.cli._options import SANDBOX, Span
from tupper.cli._sandboxes import attach


@click.command()
@click.option("--idle", is_flag=True, help="Set the time without activity instead; or never.")
@click.argument("sandbox", type=SANDBOX)
@click.argument("time", type=Span(may_be_never=True))
def timeout(*, sandbox: str, time: float, idle: bool) -> None:
    """Let SANDBOX live for TIME from now: 90s, 5m, 2h, 1d."""
    box = attach(sandbox)
    if idle:
        box.set_idle_timeout(None if math.isinf(time) else time)
    elif math.isinf(time):
        raise click.UsageError("a running sandbox needs a length of time, such as 1d")
    else:
        box.set_timeout(int(time))
