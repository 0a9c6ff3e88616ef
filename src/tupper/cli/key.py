"""``tupper key``: who may use ``tupper serve`` over TCP."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from tupper.cli import _control, _output
from tupper.cli._options import json_option, listing_options


@click.group()
def key() -> None:
    """Make, list and remove API keys for clients over TCP."""


@key.command()
@click.option("--label", default="", help="To recognise it by.")
@json_option
def create(*, label: str, as_json: bool) -> None:
    """Make a key and print it. It is shown only now: just its hash is kept."""
    made = _control.create_key(label)
    if as_json:
        _output.as_json(made)
    else:
        _output.result(str(made["key"]))


@key.command(name="list")
@listing_options
def list_keys(*, as_json: bool, quiet: bool) -> None:
    """List keys by their ids."""
    keys = _control.list_keys()
    if as_json:
        _output.as_json(keys)
    elif quiet:
        for found in keys:
            _output.result(str(found["id"]))
    else:
        _output.table(("ID", "LABEL", "MADE"), [_row(found) for found in keys])


def _row(found: dict[str, object]) -> tuple[object, ...]:
    made = found.get("createdAt")
    at = datetime.fromtimestamp(made, UTC) if isinstance(made, int | float) else None
    return str(found["id"]), str(found.get("label", "")), f"{_output.span(_output.since(at))} ago"


@key.command()
@click.argument("ids", nargs=-1, required=True)
def remove(*, ids: tuple[str, ...]) -> None:
    """Remove keys by their ids; who uses one is refused from then on."""
    for name in ids:
        _control.remove_key(name)
        _output.result(name)
