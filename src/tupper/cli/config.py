"""``tupper config``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import json_option
from tupper.cli._settings import describe


@click.command()
@json_option
def config(*, as_json: bool) -> None:
    """Show where tupper keeps things, the settings in force and the profiles.

    Keys are never printed.
    """
    facts = describe()
    if as_json:
        _output.as_json(facts)
        return
    for title, values in facts.items():
        _output.result(f"[{title}]")
        _output.pairs(values)
        _output.result("")
