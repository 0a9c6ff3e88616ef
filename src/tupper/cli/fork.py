"""``tupper fork``."""

from __future__ import annotations

import math

import click

from tupper import Sandbox
from tupper.cli import _output
from tupper.cli._options import SANDBOX, Span, listing_options
from tupper.cli._sandboxes import info_as_json


@click.command()
@click.argument("sandbox", type=SANDBOX)
@click.option("-n", "--count", type=click.IntRange(1, 100), default=1, help="How many [1].")
@click.option("--timeout", type=Span(), metavar="TIME", help="Their whole life [5m].")
@listing_options
def fork(*, sandbox: str, count: int, timeout: float | None, as_json: bool, quiet: bool) -> int:
    """Start copies of SANDBOX as it is now, and print their ids. It goes on itself.

    Exits with 1 if one of them could not be started.
    """
    life_s = None if timeout is None else math.ceil(timeout)
    with _output.waiting(f"copying {sandbox}", quiet=quiet):
        made = Sandbox.fork(sandbox, timeout=life_s, count=count)
    started = [one for one in made if isinstance(one, Sandbox)]
    for one in made:
        if isinstance(one, Exception):
            _output.error(str(one))
    if as_json:
        _output.as_json([info_as_json(one.get_info()) for one in started])
    else:
        for one in started:
            _output.result(one.sandbox_id)
    return 0 if len(started) == len(made) else 1
