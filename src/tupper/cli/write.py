"""``tupper write``."""

from __future__ import annotations

import sys

import click

from tupper.cli._options import SANDBOX
from tupper.cli._sandboxes import attach


@click.command()
@click.option("-u", "--user", help="Whose home relative paths start from, and who owns the file.")
@click.argument("sandbox", type=SANDBOX)
@click.argument("path")
def write(*, sandbox: str, path: str, user: str | None) -> None:
    """Write standard input to the file PATH of SANDBOX; missing directories are made."""
    attach(sandbox).files.write(path, sys.stdin.buffer, user=user)
