"""``tupper volume``: directories that outlive sandboxes."""

from __future__ import annotations

import click

from tupper import Volume, VolumeNotFoundException
from tupper.cli import _output
from tupper.cli._options import json_option, listing_options


@click.group()
def volume() -> None:
    """Make, list and remove volumes: directories that outlive sandboxes.

    A sandbox gets one with tupper run --volume NAME:PATH.
    """


@volume.command()
@click.argument("name")
@json_option
def create(*, name: str, as_json: bool) -> None:
    """Make an empty volume and print its id."""
    made = Volume.create(name)
    if as_json:
        _output.as_json({"id": made.volume_id, "name": made.name})
    else:
        _output.result(made.volume_id)


@volume.command(name="list")
@listing_options
def list_volumes(*, as_json: bool, quiet: bool) -> None:
    """List volumes."""
    found = [(each.volume_id, each.name) for each in Volume.list()]
    if as_json:
        _output.as_json([{"id": volume_id, "name": name} for volume_id, name in found])
    elif quiet:
        for _, name in found:
            _output.result(name)
    else:
        _output.table(("ID", "NAME"), found)


@volume.command()
@click.argument("names", nargs=-1, required=True)
def remove(*, names: tuple[str, ...]) -> None:
    """Remove volumes by name or id, with all that is in them."""
    for name in names:
        if not Volume.destroy(name):
            raise VolumeNotFoundException(f"no volume {name!r}", hint="tupper volume list")
        _output.result(name)
