"""``tupper create``."""

from __future__ import annotations

import click

from tupper.cli import _output
from tupper.cli._options import Span, creation_arguments, creation_options, listing_options
from tupper.cli._sandboxes import create_with_progress, info_as_json


@click.command()
@creation_options
@click.option(
    "--timeout",
    type=Span(may_be_never=True),
    metavar="TIME",
    help="Its whole life: 90s, 5m, 2h, 1d or never [5m].",
)
@click.option("--idle-timeout", type=Span(), metavar="TIME", help="End it after so long unused.")
@click.option(
    "--on-timeout",
    type=click.Choice(["kill", "pause"]),
    help="What happens when its time is over [kill].",
)
@click.option("--auto-resume", is_flag=True, help="Resume it when somebody uses one of its ports.")
@listing_options
def create(
    *,
    timeout: float | None,
    idle_timeout: float | None,
    on_timeout: str | None,
    auto_resume: bool,
    as_json: bool,
    quiet: bool,
    **options: object,
) -> None:
    """Create a sandbox and print its id."""
    arguments = creation_arguments(options)
    if on_timeout or auto_resume:
        arguments["lifecycle"] = {"on_timeout": on_timeout, "auto_resume": auto_resume}
    sandbox = create_with_progress(
        arguments, timeout_s=timeout, idle_timeout_s=idle_timeout, quiet=quiet
    )
    if as_json:
        _output.as_json(info_as_json(sandbox.get_info()))
    else:
        _output.result(sandbox.sandbox_id)
