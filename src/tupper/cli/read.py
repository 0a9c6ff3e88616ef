"""``tupper read``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import SANDBOX
from tupper.cli._sandboxes import attach


@click.command()
@click.option("-u", "--user", help="Whose home relative paths start from, and whose rights.")
@click.argument("sandbox", type=SANDBOX)
@click.argument("path")
def read(*, sandbox: str, path: str, user: str | None) -> None:
    """Print the file PATH of SANDBOX, byte for byte."""
    for chunk in attach(sandbox).files.read(path, format="stream", user=user):
        _output.data(chunk)
