"""``tupper template``: build, list, remove."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from tupper.cli import _control, _output
from tupper.cli._options import Pair, listing_options


@click.group()
def template() -> None:
    """Build, list and remove templates."""


@template.command()
@click.argument("name")
@click.option(
    "-f",
    "--file",
    "dockerfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A Dockerfile; without it NAME is one of tupper's own recipes.",
)
@click.option(
    "--context",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="What COPY copies from [the Dockerfile's directory].",
)
@click.option("--build-arg", "build_args", type=Pair(), multiple=True, metavar="KEY=VALUE")
@click.option("--force", is_flag=True, help="Build again although nothing has changed.")
@click.option("-q", "--quiet", is_flag=True, help="No output of the build.")
def build(
    *,
    name: str,
    dockerfile: Path | None,
    context: Path | None,
    build_args: tuple[tuple[str, str], ...],
    force: bool,
    quiet: bool,
) -> None:
    """Build the template NAME; the steps of a Dockerfile run inside sandboxes.

    The output of the steps goes to standard error, the name to standard output.
    """
    body: dict[str, object] = {"name": name, "force": force}
    if dockerfile is not None:
        try:
            body["dockerfile"] = dockerfile.read_text()
        except OSError as error:
            raise click.UsageError(f"cannot read {dockerfile}: {error.strerror}") from error
        body["contextPath"] = str((context or dockerfile.absolute().parent).absolute())
    if build_args:
        body["buildArgs"] = dict(build_args)
    with _output.progress(quiet=quiet) as bar:
        _control.build_template(body, bar, log=None if quiet else _output.note)
    _output.result(name)


@template.command(name="list")
@listing_options
def list_templates(*, as_json: bool, quiet: bool) -> None:
    """List templates, those that are not built yet too."""
    templates = _control.list_templates()
    if as_json:
        _output.as_json(templates)
    elif quiet:
        for found in templates:
            _output.result(str(found["name"]))
    else:
        _output.table(("NAME", "BUILT", "SIZE", "TAGS"), [_row(found) for found in templates])


def _row(found: dict[str, object]) -> tuple[object, ...]:
    size = found.get("sizeBytes")
    built = "yes" if found.get("built", found.get("digest")) else "no"
    shown = _output.size(size if isinstance(size, int) and size else None)
    tags = found.get("tags")
    names = [str(tag) for tag in cast("list[object]", tags)] if isinstance(tags, list) else []
    return str(found["name"]), built, shown, " ".join(names) or "-"


@template.command()
@click.argument("names", nargs=-1, required=True)
def remove(*, names: tuple[str, ...]) -> None:
    """Remove what was built of templates NAMES."""
    for name in names:
        _control.remove_template(name)
        _output.result(name)
