"""``tupper port``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import SANDBOX, json_option
from tupper.cli._sandboxes import attach


@click.command()
@click.argument("sandbox", type=SANDBOX)
@click.argument("port", type=click.IntRange(1, 65535))
@json_option
def port(*, sandbox: str, port: int, as_json: bool) -> None:
    """Make PORT inside SANDBOX reachable on this host and print the address.

    Also servers that listen on 127.0.0.1 inside are reached. Asking again gives the same address.
    """
    address = attach(sandbox).get_host(port)
    if as_json:
        _output.as_json({"port": port, "address": address})
    else:
        _output.result(address)
