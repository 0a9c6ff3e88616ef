"""``tupper logs``."""

from __future__ import annotations

import time

import click

from tupper.cli import _output
from tupper.cli._control import log_of
from tupper.cli._options import SANDBOX
from tupper.cli._sandboxes import is_running

_ASK_AGAIN_S = 1.0


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until the sandbox ends.")
@click.argument("sandbox", type=SANDBOX)
def logs(*, sandbox: str, follow: bool) -> None:
    """Print what the agent and the machine of SANDBOX said, also after its end.

    This is not the output of commands: whoever runs a command gets that.
    """
    seen = log_of(sandbox)
    _output.text(seen)
    # The log comes by request only, so that a guest cannot fill the host's disk; hence asking.
    while follow and is_running(sandbox):
        time.sleep(_ASK_AGAIN_S)
        now = log_of(sandbox)
        _output.text(news(seen, now))
        seen = now


def news(before: str, after: str) -> str:
    """What the second text has on top of the first, whose beginning may be cut off in it."""
    if after.startswith(before):
        return after[len(before) :]
    for cut in range(0, len(before), 256):
        if after.startswith(before[cut:]):
            return after[len(before) - cut :]
    return after
